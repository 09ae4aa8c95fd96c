// Package router finds the provider that serves a model, by the model's id.
//
// The rules, in this order:
//
//  1. scripted/<name> is played by the scripted model, always.
//  2. <provider>/<model> goes to the provider of that name, if there is one.
//  3. Otherwise the longest pattern that fits decides, and among equals the provider that comes first. A provider that
//     names no patterns serves claude-* if it speaks Anthropic's API and everything if it speaks OpenAI's.
//
// A model that nobody serves is an error that says which settings would help.
//
// Without a configuration the environment decides, with the names that the official clients use; a variable that is empty
// counts as not set:
//
//	ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN   either makes a provider named anthropic
//	ANTHROPIC_BASE_URL                        its server; alone it does nothing, since clients of Perdure itself set it
//	OPENAI_API_KEY, OPENAI_BASE_URL           either makes a provider named openai; a local server needs no key
//	OPENAI_MODEL                              the model to use there unless another is named
package router
