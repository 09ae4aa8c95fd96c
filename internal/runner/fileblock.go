package runner

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/resource"
	"github.com/perdure/perdure/internal/session"
)

// maxFileBlock bounds a file that is given to the model as part of a message. It leaves room for the rest of a request,
// which may have 32 MiB with the file in base64.
const maxFileBlock = 22 << 20

// unfitError says why the model cannot be given a file. It depends on nothing but the file and is fit for the model's eyes.
type unfitError struct{ why string }

func (e *unfitError) Error() string { return e.why }

// fileBlock returns the function that replaces the source of a block which is a file by the file's content. A file that
// cannot be read any more, or that the model cannot be given, becomes a note: its provider refuses what it cannot read, and
// would refuse every later request of the session as well.
func (d *drive) fileBlock(ctx context.Context) func(jsontext.Value) jsontext.Value {
	workspace := d.lease.Workspace
	ctx = context.WithoutCancel(ctx) // the conversation outlives the drive that began it
	return func(block jsontext.Value) jsontext.Value {
		replaced, err := d.readFileBlock(ctx, workspace, block)
		var unfit *unfitError
		switch {
		case err == nil:
			return replaced
		case errors.As(err, &unfit):
			d.log.Info("a file of a message is not fit for a model", "reason", unfit.why)
			return fileNote("that cannot be shown: " + unfit.why)
		default:
			d.log.Warn("a file of a message cannot be read", "error", err)
			return fileNote("that is no longer available")
		}
	}
}

// fileNote is a block of text that stands for a file.
func fileNote(says string) jsontext.Value {
	content := session.TextContent("[A file stood here " + says + ".]")
	return content[1 : len(content)-1]
}

func (d *drive) readFileBlock(ctx context.Context, workspace string, block jsontext.Value) (jsontext.Value, error) {
	var b struct {
		Type   string `json:"type"`
		Source struct {
			File string `json:"file_id"`
		} `json:"source"`
	}
	if err := json.Unmarshal(block, &b); err != nil {
		return nil, err
	}
	content, mediaType, err := d.Files.Open(ctx, workspace, b.Source.File)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	data, err := io.ReadAll(io.LimitReader(content, maxFileBlock+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileBlock {
		return nil, &unfitError{fmt.Sprintf("it is larger than %d bytes", maxFileBlock)}
	}
	var source blockSource
	if b.Type == "image" {
		source, err = imageSource(data)
	} else {
		source, err = documentSource(mediaType, data)
	}
	if err != nil {
		return nil, err
	}
	members := map[string]jsontext.Value{}
	if err := json.Unmarshal(block, &members); err != nil {
		return nil, err
	}
	if members["source"], err = json.Marshal(source); err != nil {
		return nil, err
	}
	return json.Marshal(members, json.Deterministic(true))
}

// blockSource is a source that holds the content.
type blockSource struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      string `json:"data"`
}

func base64Source(mediaType string, data []byte) blockSource {
	return blockSource{"base64", mediaType, base64.StdEncoding.EncodeToString(data)}
}

// imageSource goes by the content: the name of a file may say something else, and the provider compares.
func imageSource(data []byte) (blockSource, error) {
	mediaType, fault := resource.JudgeImage(data)
	if fault != "" {
		return blockSource{}, &unfitError{fault}
	}
	return base64Source(mediaType, data), nil
}

func documentSource(mediaType string, data []byte) (blockSource, error) {
	switch {
	case bytes.HasPrefix(data, []byte("%PDF-")):
		return base64Source("application/pdf", data), nil
	case !strings.HasPrefix(mediaType, "text/") && !utf8.Valid(data):
		return blockSource{}, &unfitError{"it is neither text nor PDF"}
	case len(bytes.TrimSpace(data)) == 0:
		return blockSource{}, &unfitError{"it is empty"}
	}
	return blockSource{"text", "text/plain", strings.ToValidUTF8(string(data), "\uFFFD")}, nil
}
