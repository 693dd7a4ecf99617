package config

import (
	"fmt"
	"regexp"
	"strings"
)

// guest is the user that a cluster begins with unless another one is named.
const guest = "guest"

// LoopbackNone of LoopbackUsers lets every user log in from everywhere.
const LoopbackNone = "none"

// hashings are those that package auth has, with the costs that it takes.
var hashings = regexp.MustCompile(`^(sha256|bcrypt(:([4-9]|1[0-4]))?)$`)

const (
	userNameBytesMax = 255
	userTagsMax      = 16
	userTagBytesMax  = 64
)

// userProblems are those of the user that a new cluster begins with.
func (c Config) userProblems(p *Problems) {
	switch {
	case c.DefaultUser == "":
		p.add("default-user", "must not be empty")
	case len(c.DefaultUser) > userNameBytesMax:
		p.add("default-user", fmt.Sprintf("at most %d bytes, got %d", userNameBytesMax, len(c.DefaultUser)))
	case strings.ContainsAny(c.DefaultUser, "\r\n"):
		p.add("default-user", fmt.Sprintf("must be one line, got %q", c.DefaultUser))
	case c.DefaultUser != guest && c.DefaultPassFile == "":
		p.add("default-user", fmt.Sprintf("%q needs default-pass-file", c.DefaultUser))
	}
	p.add("loopback-users", oneOf(c.LoopbackUsers, []string{guest, LoopbackNone}))
	if !hashings.MatchString(c.PasswordHashing) {
		p.add("password-hashing", fmt.Sprintf("must be sha256, bcrypt or bcrypt:COST with a cost from 4 to 14, got %q", c.PasswordHashing))
	}
	if len(c.DefaultUserTags) > userTagsMax {
		p.add("default-user-tags", fmt.Sprintf("at most %d, got %d", userTagsMax, len(c.DefaultUserTags)))
	}
	for _, tag := range c.DefaultUserTags {
		if len(tag) > userTagBytesMax {
			p.add("default-user-tags", fmt.Sprintf("at most %d bytes each, got %d", userTagBytesMax, len(tag)))
		}
	}
}
