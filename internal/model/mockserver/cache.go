package mockserver

import (
	"bytes"
	"crypto/sha256"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/model"
)

const (
	// lookBack is how many blocks before a breakpoint are looked at for an entry, as at the API.
	lookBack = 20
	// maxCacheEntries bounds the memory; when it is reached the cache starts anew.
	maxCacheEntries = 100_000
)

// promptCache simulates the provider's prompt cache. An entry is the hash of everything up to a breakpoint, byte for
// byte, without the breakpoints themselves; entries do not expire. So reads are more than zero only if the client sends
// the same bytes again.
type promptCache struct {
	mu      sync.Mutex
	entries map[[sha256.Size]byte]bool
}

// cacheBlock is one block of the prompt with what comes before it.
type cacheBlock struct {
	prefix [sha256.Size]byte // hash of this block and all before it
	tokens int64             // of this block and all before it
	ttl    string            // of its breakpoint: 5m or 1h; "" if it has none
}

// usage works out what a request reads from the cache and writes to it, and keeps what it writes.
func (c *promptCache) usage(r *request, estimate model.Usage) model.Usage {
	blocks := promptBlocks(r)
	usage := model.Usage{OutputTokens: estimate.OutputTokens, WebSearchRequests: estimate.WebSearchRequests}
	if len(blocks) == 0 {
		return usage
	}
	total := blocks[len(blocks)-1].tokens
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil || len(c.entries) > maxCacheEntries {
		c.entries = map[[sha256.Size]byte]bool{}
	}
	var read int64
	for i, block := range blocks {
		if block.ttl == "" {
			continue
		}
		for j := i; j >= 0 && j >= i-lookBack; j-- {
			if c.entries[blocks[j].prefix] {
				read = max(read, blocks[j].tokens)
				break
			}
		}
	}
	usage.CacheReadTokens = read
	written := read
	for _, block := range blocks {
		if block.ttl == "" {
			continue
		}
		c.entries[block.prefix] = true
		if block.tokens <= written {
			continue
		}
		if block.ttl == "1h" {
			usage.CacheWrite1hTokens += block.tokens - written
		} else {
			usage.CacheWrite5mTokens += block.tokens - written
		}
		written = block.tokens
	}
	usage.InputTokens = total - written
	return usage
}

// promptBlocks lists the blocks of the prompt in its order: tools, system, messages.
func promptBlocks(r *request) []cacheBlock {
	var blocks []cacheBlock
	hash := sha256.New()
	hash.Write([]byte(r.Model))
	size := 0
	add := func(label string, raw jsontext.Value) {
		text, ttl := withoutCacheControl(raw)
		hash.Write([]byte("\x00" + label + "\x00"))
		hash.Write(text)
		size += len(text)
		block := cacheBlock{tokens: int64((size + bytesPerToken - 1) / bytesPerToken), ttl: ttl}
		hash.Sum(block.prefix[:0])
		blocks = append(blocks, block)
	}
	for _, tool := range r.Tools {
		add("tool", tool)
	}
	for _, block := range systemBlocks(r.System) {
		add("system", block)
	}
	for _, m := range r.Messages {
		var elements []jsontext.Value
		if json.Unmarshal(m.Content, &elements) != nil {
			elements = []jsontext.Value{m.Content}
		}
		for _, element := range elements {
			add(m.Role, element)
		}
	}
	return blocks
}

// withoutCacheControl returns a block without its breakpoint, otherwise byte for byte, and the breakpoint's life.
func withoutCacheControl(raw jsontext.Value) (text []byte, ttl string) {
	var members map[string]jsontext.Value
	if raw.Kind() != '{' || json.Unmarshal(raw, &members) != nil || members["cache_control"] == nil {
		return raw, ""
	}
	var control struct {
		TTL string `json:"ttl"`
	}
	ttl = "5m"
	if json.Unmarshal(members["cache_control"], &control) == nil && control.TTL != "" {
		ttl = control.TTL
	}
	return dropMember(raw, "cache_control"), ttl
}

// dropMember cuts one member out of the text of an object. Every other byte stays.
func dropMember(raw jsontext.Value, name string) []byte {
	decoder := jsontext.NewDecoder(bytes.NewReader(raw))
	if _, err := decoder.ReadToken(); err != nil {
		return raw
	}
	before := decoder.InputOffset() // the end of the value before, or of the opening brace
	first := true
	for decoder.PeekKind() == '"' {
		key, err := decoder.ReadToken()
		if err != nil {
			return raw
		}
		matches := key.String() == name
		if _, err := decoder.ReadValue(); err != nil {
			return raw
		}
		after := decoder.InputOffset()
		if matches {
			rest := raw[after:]
			if first {
				rest = trimComma(rest)
			}
			return append(append([]byte{}, raw[:before]...), rest...)
		}
		before, first = after, false
	}
	return raw
}

// trimComma drops the comma that followed a first member.
func trimComma(rest []byte) []byte {
	return bytes.TrimPrefix(bytes.TrimLeft(rest, " \t\r\n"), []byte(","))
}
