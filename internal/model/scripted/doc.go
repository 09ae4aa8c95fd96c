// Package scripted is a model that plays scripts. It costs nothing, needs no key and always says the same, so it serves
// to try Perdure, to test an agent's tools and policies, and to make a failure of the model happen on purpose.
//
// A script is a YAML file. Its name without the extension is the name of the model: hello.yaml is scripted/hello.
//
//	description: Greets, looks around, and reports.
//	steps:
//	  - answer:
//	      - text: Let me look.
//	      - tool: bash
//	        input: {command: ls}
//	  - text: "I found: {{result}}"
//	otherwise:
//	  text: I have nothing to add.
//
// # Which step is played
//
// Each request for an answer plays one step. The choice depends on nothing but the request, that is the conversation so
// far, so a server that was restarted, or another server, goes on where the session was:
//
//  1. The first entry of rules whose when holds, if there is one. Rules use up no step.
//  2. Otherwise the next entry of steps. An entry with repeat: 3 is played three times. An entry whose when does not hold
//     as its turn comes is skipped for good.
//  3. Otherwise, when steps is used up, the entry otherwise, again and again. Without it the request fails.
//
// "Next" is counted by the answers in the conversation. Where a summary takes the place of old messages (compaction) the
// count starts anew; a script for such a session is best written with rules. A request of the server's own, such as for a
// summary, plays a step as well.
//
// when holds if all that it names hold. It looks at what came after the model's last answer:
//
//	when:
//	  user: please        # is part of the text of a user message
//	  result: not found   # is part of a tool result
//	  error: true         # a tool result is an error (false: there are results and none is an error)
//	  system: terse       # is part of the system prompt
//
// # What a step says
//
// text is short for an answer of one text block. answer lists blocks in order, each exactly one of:
//
//	answer:
//	  - text: Hello.
//	  - thinking: The user wants a list.
//	    signature: abc            # made by Signature if left out
//	  - redacted_thinking: b3BhcXVl
//	  - tool: bash
//	    input: {command: ls}      # a mapping, or a string that holds a JSON object and is sent as it stands, which
//	                              # keeps the text of numbers
//	    id: toolu_1               # a unique one is made if left out
//	  - tool: bash
//	    raw_input: '{"command": ' # sent as it stands, also if it is no JSON
//	  - raw: '{"type":"new_kind","x":1}'
//
// An empty answer is answer: []. In texts, thinking and inputs these are replaced, to at most 64 KiB each:
//
//	{{user}}     what the user wrote since the last answer
//	{{result}}   the last tool result since the last answer
//	{{session}}  the id of the session
//	{{answer}}   the number of this answer, from 1
//
// Further keys of a step, all optional:
//
//	repeat: 3                 # steps only
//	delay: 2s                 # before the first byte; 1h is as good as a model that never answers
//	delta_delay: 50ms         # between two pieces of the stream
//	delta_size: 12            # characters of a piece; 24 if left out
//	stop: max_tokens          # tool_use if there is a call, else end_turn
//	refusal: {category: cyber, explanation: no}   # sets stop as well; both parts may be left out
//	usage: {input: 10, output: 5, cache_read: 0, cache_write: 0, cache_write_1h: 0, web_searches: 0, fast: false}
//
// Without usage it is estimated from the lengths of the request and the answer, four bytes to a token. The keys delay,
// delta_delay and delta_size may stand under defaults at the top of the file, for all steps.
//
// # Failures
//
// fail answers with an HTTP error in place of the answer. Without times it always does; with times: 2 the first two
// attempts at this answer fail and the third is given.
//
//	fail: {times: 2, status: 529, type: overloaded_error, message: busy, retry_after: 2s}
//
// status is 529 if left out; type follows from the status.
//
// break begins the answer and stops short. times is as with fail, and counts the attempts that were not failed.
//
//	break: {how: error, after_blocks: 1, type: overloaded_error, message: busy}
//	break: {how: cut, after_characters: 20, times: 1}
//
//	how: error   an error event in the stream
//	     end     the stream ends in good order, but the end of the answer is missing
//	     cut     the connection is dropped
//	     stall   nothing more comes, and the connection stays open
//	     pings   only pings come, one a second
//
// The place is one of after_characters (of text, thinking and tool inputs together, so a place inside a tool input can be
// hit), after_blocks and before_stop: true (everything is there but the last event). Without a place it is before the
// first block. An answer that ends before its place breaks at its end.
//
// The attempts are the only thing that is counted in the memory of the process, by session and answer. After a restart
// they begin anew, so a step with times: 2 fails twice more.
package scripted
