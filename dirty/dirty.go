// Package dirty gives out memory that is not cleared. The runtime clears what make returns, which for a buffer that is
// filled at once costs as much as filling it does: a message's body passes a dozen such buffers on its way over three nodes.
package dirty

import (
	"strings"
	"unsafe"
)

// clearedMax is the size up to which make is as good.
const clearedMax = 256

// Bytes returns n bytes with anything in them. The caller writes all that it, or anybody, will read.
func Bytes(n int) []byte {
	if n <= clearedMax {
		return make([]byte, n)
	}
	// A Builder is the one type of the library that takes memory for bytes without clearing it. One byte makes
	// the string begin where the memory does; nobody keeps the string.
	var b strings.Builder
	b.Grow(n)
	b.WriteByte(0)
	return unsafe.Slice(unsafe.StringData(b.String()), n)
}
