package bootstrap

import (
	"fmt"

	"github.com/warrenmq/warren/cluster/level"
)

// Level is the level that the folder is stamped with: what it holds may be of that level, so that a program that
// does not know it does not open the folder.
func (i *Identity) Level() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.rec.Version
}

// SetLevel stamps the folder with a level, durably. One that the folder has passed already is kept. It is called before the
// node's first use of what the level brought.
func (i *Identity) SetLevel(n int) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case n < level.First || n > level.Now:
		return fmt.Errorf("level %d, this program knows level %d", n, level.Now)
	case n <= i.rec.Version:
		return nil
	}
	next := i.rec
	next.Version = n
	return i.store(next)
}
