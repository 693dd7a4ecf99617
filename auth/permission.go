package auth

import (
	"fmt"
	"regexp"
)

// Action is what a user wants to do with a queue or an exchange.
type Action uint8

// The actions.
const (
	Configure Action = iota
	Write
	Read
)

// String returns the word used in refusals.
func (a Action) String() string { return [...]string{"configure", "write", "read"}[a] }

// Kind is what an action is done to. Its value is the word used in refusals.
type Kind string

// The kinds of resources.
const (
	Queue    Kind = "queue"
	Exchange Kind = "exchange"
)

// DefaultExchangeName is the name under which the default exchange is checked.
const DefaultExchangeName = "amq.default"

// PatternBytesMax bounds each pattern of a permission.
const PatternBytesMax = 4096

// Permission is what one user may do in one vhost. It is immutable and safe for
// use by several goroutines; nil allows nothing.
type Permission struct {
	User, Vhost string
	patterns    [3]string         // by Action
	compiled    [3]*regexp.Regexp // nil matches nothing
}

// NewPermission compiles a permission. The patterns are regular expressions in Go's
// syntax (RE2) that match anywhere in a name; "" matches nothing.
func NewPermission(user, vhost, configure, write, read string) (*Permission, error) {
	p := &Permission{User: user, Vhost: vhost, patterns: [3]string{Configure: configure, Write: write, Read: read}}
	for i, s := range p.patterns {
		if len(s) > PatternBytesMax {
			return nil, fmt.Errorf("%s pattern has %d bytes, the maximum is %d", Action(i), len(s), PatternBytesMax)
		}
		if s == "" {
			continue
		}
		re, err := regexp.Compile(s)
		if err != nil {
			return nil, fmt.Errorf("%s pattern: %w", Action(i), err)
		}
		p.compiled[i] = re
	}
	return p, nil
}

// Pattern returns the pattern for an action as it was given.
func (p *Permission) Pattern(a Action) string { return p.patterns[a] }

// Allows reports whether p permits an action on a resource of the given name.
func (p *Permission) Allows(a Action, k Kind, name string) bool {
	return p != nil && p.compiled[a] != nil && p.compiled[a].MatchString(CheckedName(k, name))
}
