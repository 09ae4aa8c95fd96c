// Package id makes and checks the public identifiers of Perdure's objects.
//
// An id is a prefix that names the kind of object, then "_01", then 22 base58 digits of a UUIDv7. Ids of one kind
// therefore sort by the time they were made when compared as bytes. Clients treat them as opaque.
package id

import (
	"fmt"
	"math/big"
	"strings"

	"github.com/google/uuid"
)

// Prefix names a kind of object on the wire.
type Prefix string

// The kinds that exist. The list is closed: an id with another prefix is malformed.
const (
	Agent           Prefix = "agent"
	APIKey          Prefix = "apikey"
	Environment     Prefix = "env"
	Event           Prefix = "sevt"
	File            Prefix = "file"
	Node            Prefix = "node"
	Outcome         Prefix = "outc"
	Request         Prefix = "req"
	Session         Prefix = "sesn"
	SessionResource Prefix = "sesrsc"
	Thread          Prefix = "sthr"
	Workspace       Prefix = "wrkspc"
)

const (
	alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	digits   = 22
	version  = "_01"
)

// New makes an id that no other process makes. Ids of one process increase strictly.
func New(prefix Prefix) string {
	u, err := uuid.NewV7()
	if err != nil {
		// The operating system's random source failed; no correct id can be made and nothing durable was begun.
		panic(fmt.Sprintf("id: read random source: %v", err))
	}
	return string(prefix) + version + encode(u)
}

// Valid reports whether s has the form of an id of this kind. It says nothing of whether the object exists.
func Valid(prefix Prefix, s string) bool {
	rest, ok := strings.CutPrefix(s, string(prefix)+version)
	if !ok || len(rest) != digits {
		return false
	}
	for i := range len(rest) {
		if strings.IndexByte(alphabet, rest[i]) < 0 {
			return false
		}
	}
	return true
}

func encode(u uuid.UUID) string {
	var out [digits]byte
	number, base, rest := new(big.Int).SetBytes(u[:]), big.NewInt(58), new(big.Int)
	for i := digits - 1; i >= 0; i-- {
		number.DivMod(number, base, rest)
		out[i] = alphabet[rest.Int64()]
	}
	return string(out[:])
}
