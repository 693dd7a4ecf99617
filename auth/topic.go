package auth

import (
	"fmt"
	"regexp"
	"strings"
)

// TopicPermission is what one user may do with the keys of one topic exchange:
// publish with those that the write pattern matches, bind with those that the read
// pattern matches. It is immutable and safe for use by several goroutines; nil,
// which stands for no entry, allows everything.
type TopicPermission struct {
	User, Vhost, Exchange string
	patterns              [3]string
	compiled              [3]*regexp.Regexp // nil matches nothing
}

// NewTopicPermission compiles a permission. The patterns are as in
// [NewPermission]; {username} and {vhost} in them stand for the names.
func NewTopicPermission(user, vhost, exchange, write, read string) (*TopicPermission, error) {
	p := &TopicPermission{User: user, Vhost: vhost, Exchange: exchange, patterns: [3]string{Write: write, Read: read}}
	names := strings.NewReplacer("{username}", regexp.QuoteMeta(user), "{vhost}", regexp.QuoteMeta(vhost))
	for _, a := range []Action{Write, Read} {
		s := p.patterns[a]
		if len(s) > PatternBytesMax {
			return nil, fmt.Errorf("%s pattern has %d bytes, the maximum is %d", a, len(s), PatternBytesMax)
		}
		if s == "" {
			continue
		}
		re, err := regexp.Compile(names.Replace(s))
		if err != nil {
			return nil, fmt.Errorf("%s pattern: %w", a, err)
		}
		p.compiled[a] = re
	}
	return p, nil
}

// Pattern returns the pattern for [Write] or [Read] as it was given.
func (p *TopicPermission) Pattern(a Action) string { return p.patterns[a] }

// Allows implements [Keys].
func (p *TopicPermission) Allows(a Action, key string) bool {
	return p == nil || p.compiled[a] != nil && p.compiled[a].MatchString(key)
}
