// Package price is the catalogue of models: what they are called, what they can hold and what they cost by list.
//
// Money is counted in pico-dollars (10⁻¹² US dollars) in an int64, so that every sum is exact: one dollar for a million
// tokens is a million pico-dollars for one. The largest amount is a little over nine million dollars; what would be more
// stays there. A model that is not in the catalogue, or has no price, costs "unknown" and never nothing.
//
// # A catalogue of one's own
//
// Models can be added and prices replaced with a YAML file (or JSON, which is YAML). Unknown keys are errors with the
// line. An entry takes the place of one with the same id as a whole.
//
//	models:
//	  - id: qwen3-coder             # or a pattern that ends with an asterisk, such as qwen3-*
//	    aliases: [qwen/qwen3-coder]
//	    display_name: Qwen3 Coder
//	    released: 2025-07-22
//	    context: 262144             # tokens of prompt and answer together
//	    max_output: 65536           # tokens of an answer
//	    system_messages: true       # takes system messages in the middle of a conversation
//	    default_effort: ""          # low, medium, high, xhigh or max; empty if the model has no such choice
//	    prices:                     # dollars for a million tokens, at most six decimals
//	      input: 0.22
//	      cache_read: 0.022         # as input, if left out
//	      cache_write_5m: 0.22      # as input, if left out
//	      cache_write_1h: 0.22      # as cache_write_5m, if left out
//	      output: 0.95
//	    long_prompt:                # prices of a whole request whose prompt, cached or not, is longer than this
//	      above: 100000
//	      prices: {input: 0.5, output: 2.5}
//	    fast_multiplier: 2          # of the token prices at the fast speed; without it, fast has no price
//
// An entry without prices is known but has no list price. A model of one's own machine that is to count as free needs
// prices: {input: 0, output: 0}.
//
// An id is looked up as it is, then without a date at its end (-20251001), then by the longest pattern that fits. The
// prefix "anthropic/" is ignored.
package price
