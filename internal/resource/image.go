package resource

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	_ "image/gif" // the kinds of images that models take
	_ "image/jpeg"
	_ "image/png"
)

// MaxImageSide bounds the width and the height of an image, in pixels.
const MaxImageSide = 8_000

// JudgeImage looks at what an image really is. It returns its media type, or why no model takes it: a model's provider
// refuses what it cannot read, and with it every later request of the session.
func JudgeImage(data []byte) (mediaType, fault string) {
	if base64.StdEncoding.EncodedLen(len(data)) > MaxImageData {
		return "", fmt.Sprintf("the image is larger than %d bytes in base64", MaxImageData)
	}
	if len(data) > 12 && string(data[:4]) == "RIFF" && string(data[8:12]) == "WEBP" {
		return "image/webp", ""
	}
	header, format, err := image.DecodeConfig(bytes.NewReader(data))
	switch {
	case err != nil:
		return "", "it is not an image of a kind that models take"
	case max(header.Width, header.Height) > MaxImageSide:
		return "", fmt.Sprintf("the image has %d × %d pixels, and the most is %d on a side", header.Width, header.Height, MaxImageSide)
	}
	return "image/" + format, ""
}

// checkImage refuses an image that no model takes, or that is not what it is said to be.
func (n node) checkImage(s source) {
	if !n.ok() {
		return
	}
	data, err := base64.StdEncoding.DecodeString(s.Data)
	if err != nil {
		return // it was refused
	}
	mediaType, fault := JudgeImage(data)
	switch {
	case fault != "":
		n.refuse(join(n.path, "data"), "%s", fault)
	case mediaType != s.MediaType:
		n.refuse(join(n.path, "media_type"), "the image is %s, not %s", mediaType, s.MediaType)
	}
}

// checkPDF refuses a document that is no PDF.
func (n node) checkPDF(s source) {
	head, err := base64.StdEncoding.DecodeString(s.Data[:min(len(s.Data), 8)/4*4])
	if n.ok() && (err != nil || !bytes.HasPrefix(head, []byte("%PDF-"))) {
		n.refuse(join(n.path, "data"), "it is not a PDF")
	}
}
