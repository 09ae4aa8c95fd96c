//go:build linux

package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

const (
	recordHeader   = 5
	handshake      = 22
	maxRecord      = 16 << 10
	maxClientHello = 64 << 10
)

// readClientHello reads the beginning of a TLS connection as far as the client's first message goes. It returns the bytes
// and the server name in them, "" if there is none.
func readClientHello(r *bufio.Reader) (raw []byte, name string, err error) {
	notTLS := &denied{"only TLS may be spoken after CONNECT"}
	for len(raw) < maxClientHello {
		header := make([]byte, recordHeader)
		if _, err := io.ReadFull(r, header); err != nil {
			return nil, "", notTLS
		}
		length := int(header[3])<<8 | int(header[4])
		if header[0] != handshake || length == 0 || length > maxRecord {
			return nil, "", notTLS
		}
		body := make([]byte, length)
		if _, err := io.ReadFull(r, body); err != nil {
			return nil, "", notTLS
		}
		raw = append(append(raw, header...), body...)
		name, complete := serverName(raw)
		if complete {
			return raw, name, nil
		}
	}
	return nil, "", &denied{"the first TLS message is too long"}
}

var errSeen = errors.New("the client's first message has been read")

// serverName lets the standard library read the message: a parser of our own would be one more that can be led to read
// another name than the server does.
func serverName(raw []byte) (name string, complete bool) {
	config := &tls.Config{
		MinVersion: tls.VersionTLS10, // nothing is negotiated; what is acceptable is for the real server to say
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			name, complete = hello.ServerName, true
			return nil, errSeen
		},
	}
	err := tls.Server(&replay{bytes.NewReader(raw)}, config).HandshakeContext(context.Background())
	if err != nil && !complete && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", true // not a first message that could be understood: it has no name that could be right
	}
	return name, complete
}

// replay is a connection on which only what was read before can be read.
type replay struct{ *bytes.Reader }

func (*replay) Write(p []byte) (int, error)      { return len(p), nil }
func (*replay) Close() error                     { return nil }
func (*replay) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*replay) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*replay) SetDeadline(time.Time) error      { return nil }
func (*replay) SetReadDeadline(time.Time) error  { return nil }
func (*replay) SetWriteDeadline(time.Time) error { return nil }
