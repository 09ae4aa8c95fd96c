// Package goclient drives the real binary with the official Go client, unmodified: it is given a base URL and a key, and
// nothing else.
package goclient
