package catalog

import (
	"fmt"
	"hash/fnv"
)

// Digest tells the view's revision and a digest of all of it, in hexadecimal: nodes at the same
// revision have the same. It encodes the view, so that it costs what a snapshot does.
func (v *View) Digest() (revision uint64, digest string) {
	h := fnv.New64a()
	_ = (&snapshot{view: v}).write(h) // a hash takes everything
	return v.revision, fmt.Sprintf("%016x", h.Sum64())
}
