package remote

import (
	"errors"
	"fmt"
	"strings"
)

// answerBytesMax bounds the body of an answer.
const answerBytesMax = 16 << 10

// answer is what the server says.
type answer struct {
	allowed bool
	// tags are those of the user, in the order given; only user has any.
	tags []string
}

// errUnusable is that of answers that are none. They permit nothing.
var errUnusable = errors.New("no answer that is understood")

// parseAnswer reads the body of an answer. As with RabbitMQ upper and lower case are the same, spaces around the text are none of it, and what follows deny is a
// reason, which nobody is told. tagged tells that tags may follow allow. Unlike there a line's end is no part of the text, and the word allow ends with a space.
func parseAnswer(body string, tagged bool) (answer, error) {
	if len(body) > answerBytesMax {
		return answer{}, fmt.Errorf("%w: it has more than %d bytes", errUnusable, answerBytesMax)
	}
	word, rest, _ := strings.Cut(strings.ToLower(strings.TrimSpace(body)), " ")
	switch {
	case strings.HasPrefix(word, "deny"):
		return answer{}, nil
	case word != "allow" || !tagged && rest != "":
		return answer{}, errUnusable
	}
	a := answer{allowed: true}
	for tag := range strings.SplitSeq(rest, " ") {
		if tag != "" {
			a.tags = append(a.tags, tag)
		}
	}
	return a, nil
}
