package catalog

import "encoding/binary"

// Copy is the catalog's machine without its log. Simulations of other parts feed
// several of them the same commands, each at its own pace. Apply is for one goroutine;
// View may be called by all.
type Copy struct{ m *machine }

// NewCopy returns an empty catalog.
func NewCopy() *Copy { return &Copy{newMachine(func(*applied) {})} }

// View is the state after the newest command.
func (c *Copy) View() *View { return c.m.view.Load() }

// Apply applies a command as the log entry at index, which must rise. The error is an
// [*amqp.Error] if the machine refused.
func (c *Copy) Apply(index uint64, cmd Command) (Result, error) {
	var id requestID
	binary.BigEndian.PutUint64(id[:], index)
	return c.m.apply(index, encodeEntry(id, cmd)).result(c.View())
}
