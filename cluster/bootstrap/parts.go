package bootstrap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Part is a folder of the data directory that holds what others rely on this storage to
// have: votes it gave, entries it said to be durable.
type Part struct {
	Name string // of the folder
	// Whole returns nil if dir holds what such a folder has from its making on, else what it lacks.
	Whole func(dir string) error
}

// ownerFile is in each part, and holds the uuid of the storage it belongs to.
const ownerFile = "OWNER"

// Errors of parts that callers decide by.
var (
	// ErrPartLost reports a part that this storage had and that is not there any more. The
	// storage must not start: it would vote and answer as if it had never said anything.
	ErrPartLost = errors.New("a part of the data directory is missing")
	// ErrForeignPart reports a part that belongs to another storage.
	ErrForeignPart = errors.New("a part of the data directory belongs to another storage")
)

func (i *Identity) partDir(name string) string { return filepath.Join(i.dir, name) }

// openParts checks the parts of a directory that is being opened and returns those that
// were made, for the record of this start.
func (i *Identity) openParts() ([]string, error) {
	if i.rec.Parts == nil {
		return i.adoptParts()
	}
	for _, p := range i.parts {
		if !slices.Contains(i.rec.Parts, p.Name) {
			continue
		}
		dir := i.partDir(p.Name)
		owner, err := readOwner(dir)
		switch {
		case err == nil && owner != i.rec.Storage:
			return nil, fmt.Errorf("%w: %s is of %s, not of %s", ErrForeignPart, dir, owner, i.rec.Storage)
		case err == nil:
			err = p.Whole(dir)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %s (%w): put it back, or wipe the whole of %s, the node then joins as a new one",
				ErrPartLost, dir, err, i.dir)
		}
	}
	return i.rec.Parts, nil
}

// adoptParts takes the folders of a version that did not record its parts as they are.
func (i *Identity) adoptParts() ([]string, error) {
	made := []string{}
	for _, p := range i.parts {
		if p.Whole(i.partDir(p.Name)) != nil {
			continue // not made yet: that version could not tell either
		}
		if err := i.claim(i.partDir(p.Name)); err != nil {
			return nil, err
		}
		made = append(made, p.Name)
	}
	return made, nil
}

// Part readies the named part, one of those given to OpenIdentity, and calls open with its
// folder. open makes what is not there; at a first start it must not do yet what others
// may rely on, but leave the part whole and durable.
//
// The order is what a crash can not break: the folder is marked with its owner, made,
// and only then entered as made in the identity. A start that finds it half made goes on;
// one that does not find what was entered is refused by OpenIdentity.
func (i *Identity) Part(name string, open func(dir string) error) error {
	at := slices.IndexFunc(i.parts, func(p Part) bool { return p.Name == name })
	if at < 0 {
		return fmt.Errorf("data directory has no part '%s'", name)
	}
	dir := i.partDir(name)
	i.mu.Lock()
	made := slices.Contains(i.rec.Parts, name)
	i.mu.Unlock()
	if made {
		return open(dir)
	}
	if _, err := readOwner(dir); errors.Is(err, fs.ErrNotExist) && i.parts[at].Whole(dir) == nil {
		return fmt.Errorf("%w: %s was not made by %s", ErrForeignPart, dir, i.NodeID())
	}
	if err := i.step(); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	if err := i.step(); err != nil {
		return err
	}
	if err := i.claim(dir); err != nil {
		return err
	}
	if err := i.step(); err != nil {
		return err
	}
	if err := open(dir); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	next := i.rec
	next.Parts = append(slices.Clone(next.Parts), name)
	return i.store(next)
}

// step is a place between two writes at which tests end the process.
func (i *Identity) step() error {
	if i.fault == nil {
		return nil
	}
	return i.fault()
}

// claim marks a folder as this storage's, and makes the folder's own entry durable.
func (i *Identity) claim(dir string) error {
	i.mu.Lock()
	storage := i.rec.Storage
	i.mu.Unlock()
	owner, err := readOwner(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = writeDurably(filepath.Join(dir, ownerFile), []byte(storage+"\n"))
	case err == nil && owner != storage:
		return fmt.Errorf("%w: %s is of %s, not of %s", ErrForeignPart, dir, owner, storage)
	}
	if err == nil {
		err = syncDir(i.dir)
	}
	if err != nil {
		return fmt.Errorf("mark %s as this node's: %w", dir, err)
	}
	return nil
}

// readOwner returns the storage a folder belongs to. The file is replaced as a whole, so
// that it is never found half.
func readOwner(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, ownerFile))
	if err != nil {
		return "", err
	}
	owner := strings.TrimSpace(string(b))
	if !validUUID(owner) {
		return "", fmt.Errorf("%s in %s holds no uuid", ownerFile, dir)
	}
	return owner, nil
}
