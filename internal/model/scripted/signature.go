package scripted

import (
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/model"
)

// Signature is the signature that a scripted model puts on its thinking. Only the same model with the same text after the
// same conversation makes the same one, as with the models that bind thinking to what came before it. So a checker can
// tell altered thinking, thinking of another model and thinking whose past was rewritten, without having seen the answer.
func Signature(modelID, thinking string, before *Past) string {
	return SignatureAfter(modelID, thinking, before.Sum())
}

// SignatureAfter is Signature for a past of which only the sum is at hand.
func SignatureAfter(modelID, thinking, before string) string {
	sum := sha256.New()
	sum.Write([]byte("perdure scripted thinking\x00" + modelID + "\x00" + before + "\x00" + thinking))
	return base64.StdEncoding.EncodeToString(sum.Sum(nil))
}

// Past is a conversation up to some block, as far as thinking is bound to it: roles and content of the blocks, however
// they are divided into messages, written or marked for the cache. Thinking itself does not count. The zero value is not
// usable.
type Past struct{ hash hash.Hash }

// NewPast returns the past that these messages make.
func NewPast(messages ...model.Message) *Past {
	p := &Past{sha256.New()}
	for _, message := range messages {
		for _, block := range rawBlocks(message.Content) {
			p.Add(message.Role, block)
		}
	}
	return p
}

// rawBlocks are the blocks of a message. A string stands for one text block.
func rawBlocks(content jsontext.Value) []jsontext.Value {
	if content.Kind() == '"' {
		return []jsontext.Value{jsontext.Value(`{"type":"text","text":` + string(content) + `}`)}
	}
	var blocks []jsontext.Value
	if json.Unmarshal(content, &blocks) != nil {
		return []jsontext.Value{content}
	}
	return blocks
}

// Add extends the past by a block.
func (p *Past) Add(role string, block jsontext.Value) {
	var members map[string]jsontext.Value
	if json.Unmarshal(block, &members) == nil {
		var kind string
		if json.Unmarshal(members["type"], &kind) == nil && (kind == "thinking" || kind == "redacted_thinking") {
			return
		}
		delete(members, "cache_control")
		if plain, err := json.Marshal(members, json.Deterministic(true)); err == nil {
			block = plain
		}
	}
	block = block.Clone()
	// What cannot be brought into canonical form counts as it is.
	_ = block.Canonicalize()
	p.hash.Write([]byte(role + "\x00" + strconv.Itoa(len(block)) + "\x00"))
	p.hash.Write(block)
}

// Sum identifies the past.
func (p *Past) Sum() string { return base64.StdEncoding.EncodeToString(p.hash.Sum(nil)) }
