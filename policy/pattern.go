package policy

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// Bounds of a pattern: its text, and the program it becomes, which each name of a queue
// or an exchange is run through.
const (
	PatternBytesMax   = 4096
	patternProgramMax = 8192 // instructions
)

// pattern matches names anywhere in them. Go's syntax (RE2) has no look-around, so that
// no pattern takes more than linear time; of PCRE's, which RabbitMQ uses, one look-ahead
// is understood because it stands in so many policies: ^(?!NOT)REST.
type pattern struct {
	not, re *regexp.Regexp // not may be nil
}

func compile(text string) (p pattern, err error) {
	if len(text) > PatternBytesMax {
		return p, fmt.Errorf("it has %d bytes, the maximum is %d", len(text), PatternBytesMax)
	}
	if rest, ok := strings.CutPrefix(text, "^(?!"); ok {
		if not, rest, ok := closing(rest); ok {
			if p.not, err = program("^(?:" + not + ")"); err != nil {
				return p, err
			}
			text = "^(?:" + rest + ")"
		}
	}
	p.re, err = program(text)
	return p, err
}

// closing cuts what stands before the parenthesis that closes the look-ahead. ok is
// false if there is none, or if the look-ahead is not for the whole pattern.
func closing(s string) (inside, rest string, ok bool) {
	depth, class := 1, false
	end := -1
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\':
			i++
		case class:
			class = c != ']'
		case c == '[':
			class = true
			if strings.HasPrefix(s[i+1:], "^") {
				i++
			}
			if strings.HasPrefix(s[i+1:], "]") {
				i++ // the first is a member
			}
		case c == '(':
			depth++
		case c == ')':
			if depth--; depth == 0 && end < 0 {
				end, depth = i, 1
			}
		case c == '|' && end >= 0 && depth == 1:
			return "", "", false
		}
	}
	if end < 0 {
		return "", "", false
	}
	return s[:end], s[end+1:], true
}

// program compiles a regular expression of a pattern.
func program(text string) (*regexp.Regexp, error) { return Expression(text, patternProgramMax) }

// Expression compiles a regular expression that becomes a program of at most so many instructions: each of them may be looked at for each
// byte of each text, and a repetition of a few bytes becomes thousands.
func Expression(text string, most int) (*regexp.Regexp, error) {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	tooLarge := func(n int) error {
		return fmt.Errorf("it repeats too much: %d instructions, the maximum is %d", n, most)
	}
	if n := reckoned(tree); n > 4*most { // before the memory is taken for it
		return nil, tooLarge(n)
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, err
	}
	if len(prog.Inst) > most {
		return nil, tooLarge(len(prog.Inst))
	}
	return regexp.Compile(text)
}

// reckoned is about how many instructions an expression becomes. Parsing has bounded what repetitions in repetitions come to.
func reckoned(tree *syntax.Regexp) int {
	n := max(1, len(tree.Rune)/2)
	for _, sub := range tree.Sub {
		n += reckoned(sub)
	}
	if tree.Op == syntax.OpRepeat {
		n *= max(1, tree.Min, tree.Max)
	}
	return n
}

func (p *pattern) match(name string) bool {
	return p.re.MatchString(name) && (p.not == nil || !p.not.MatchString(name))
}
