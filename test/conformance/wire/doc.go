// Package wire tests what is on the wire, byte by byte and without a client library: transport, errors, paging, streams and
// repeated requests, against the real binary.
package wire
