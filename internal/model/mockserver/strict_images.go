package mockserver

import (
	"bytes"
	"encoding/base64"
	"image"
	_ "image/gif"  // decoders of the kinds that the API takes
	_ "image/jpeg" // (WebP has none in the standard library; its size is not checked)
	_ "image/png"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	maxImageBytes = 5 << 20 // decoded
	maxImageSide  = 8000    // pixels
	manyImages    = 20      // with more than so many, the smaller side limit holds
	maxSideOfMany = 2000
)

type imageAt struct {
	path          string
	width, height int
}

func (c *checker) image(path string, raw jsontext.Value) {
	source, ok := c.object(path, raw)
	if !ok {
		return
	}
	at := imageAt{path: path}
	defer func() { c.images = append(c.images, at) }()
	switch stringOf(source["type"]) {
	case "url", "file":
		return
	case "base64":
	default:
		c.bad(path+".type", "must be base64, url or file")
		return
	}
	kind := stringOf(source["media_type"])
	if !slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, kind) {
		c.bad(path+".media_type", "must be image/png, image/jpeg, image/gif or image/webp")
		return
	}
	data, err := base64.StdEncoding.DecodeString(stringOf(source["data"]))
	if err != nil || len(data) == 0 {
		c.bad(path+".data", "is not valid base64")
		return
	}
	if len(data) > maxImageBytes {
		c.bad(path+".data", "the image has %d bytes, the maximum is %d", len(data), maxImageBytes)
		return
	}
	if kind == "image/webp" {
		return
	}
	header, format, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		c.bad(path+".data", "the image could not be read")
		return
	}
	if "image/"+format != kind {
		c.bad(path+".media_type", "says %s, but the image is image/%s", kind, format)
	}
	at.width, at.height = header.Width, header.Height
}

// checkImages runs last, since the limit of a side depends on the number of images.
func (c *checker) checkImages() {
	limit := maxImageSide
	if len(c.images) > manyImages {
		limit = maxSideOfMany
	}
	for _, at := range c.images {
		if at.width > limit || at.height > limit {
			c.bad(at.path, "the image is %d × %d pixels, the maximum for a side is %d with %d images", at.width, at.height, limit, len(c.images))
		}
	}
}
