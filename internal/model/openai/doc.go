// Package openai serves models through the chat completions API that OpenAI made and that Ollama, vLLM, llama.cpp,
// OpenRouter and many gateways speak.
//
// The conversation is kept in Anthropic's form and is translated here, both ways. What has no counterpart is said in
// words or left out:
//
//   - Tool results become tool messages directly after the calls. Pictures in them follow in a user message, since tool
//     messages hold text only.
//   - Thinking with a signature, or encrypted, was another provider's and is left out. A server's own reasoning comes back
//     as thinking without a signature, and is returned to it as reasoning_content, because some models lose the thread
//     of a series of tool calls without it.
//   - System messages in the middle of a conversation become user messages, since many chat templates refuse them there.
//   - Tool inputs stay as the text that the model wrote, so that numbers keep their digits.
//
// Servers differ most in their streams. A tool call may come whole or in pieces, with or without an index or an id, and
// several calls may share one index; usage, the model's name and the last marker may be missing; an error may come under
// the status 200, as an object, a string or a page. All of that is taken. Only one thing is insisted on: a finish reason,
// for without it nobody knows whether the answer is complete.
package openai
