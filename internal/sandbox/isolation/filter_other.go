//go:build linux && !amd64 && !arm64

package isolation

const auditArch uint32 = 0

var forbiddenHere []uint32
