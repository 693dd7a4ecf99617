package catalog

import "github.com/warrenmq/warren/amqp"

// definitionsHashBytesMax bounds the hash of definitions.
const definitionsHashBytesMax = 64

// NoteDefinitions notes the hash of the definitions that were loaded last, so that the same are not loaded again. What
// they said was proposed before.
type NoteDefinitions struct{ Hash string }

func (*NoteDefinitions) kind() commandKind { return kindNoteDefinitions }

func (c *NoteDefinitions) fields(f *fields) { str(f, &c.Hash) }

func (c *NoteDefinitions) validate() error {
	if c.Hash == "" || len(c.Hash) > definitionsHashBytesMax {
		return refused("the hash of definitions has %d bytes, want 1 to %d", len(c.Hash), definitionsHashBytesMax)
	}
	return nil
}

func (c *NoteDefinitions) apply(tx *txn) (Result, *amqp.Error) {
	if tx.definitions == c.Hash {
		return Result{}, nil
	}
	tx.definitions = c.Hash
	return Result{Changed: true}, nil
}

// DefinitionsHash is the hash of the definitions that were loaded last, as [NoteDefinitions] had it, "" if none were.
func (v *View) DefinitionsHash() string { return v.definitions }

// definitionsFields are the fields of recordDefinitions.
func (v *View) definitionsFields(f *fields) { str(f, &v.definitions) }

// Check tells why a command cannot be proposed whatever the catalog has, as an [*amqp.Error].
func Check(cmd Command) error { return cmd.validate() }

// QueuesIn is how many queues clients see in a vhost.
func (v *View) QueuesIn(vhost string) int {
	n, _ := v.named.get(key(vhost))
	return n
}
