package definitions

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is a kind of object.
type Kind string

// The kinds.
const (
	KindVhost           Kind = "vhost"
	KindUser            Kind = "user"
	KindPermission      Kind = "permission"
	KindTopicPermission Kind = "topic_permission"
	KindLimits          Kind = "vhost_limits"
	KindOperatorPolicy  Kind = "operator_policy"
	KindPolicy          Kind = "policy"
	KindExchange        Kind = "exchange"
	KindQueue           Kind = "queue"
	KindBinding         Kind = "binding"
	KindShovel          Kind = "shovel"
	KindParameter       Kind = "parameter"
	KindGlobalParameter Kind = "global_parameter"
	// KindKey is a key of the document.
	KindKey Kind = "key"
)

// Item names an object.
type Item struct {
	Kind  Kind   `json:"kind"`
	VHost string `json:"vhost,omitempty"`
	Name  string `json:"name"`
}

func (i Item) String() string {
	s := fmt.Sprintf("%s '%s'", strings.ReplaceAll(string(i.Kind), "_", " "), i.Name)
	if i.VHost != "" {
		s += fmt.Sprintf(" in vhost '%s'", i.VHost)
	}
	return s
}

// Difference is a field of an object that the document has otherwise.
type Difference struct {
	Field string `json:"field"`
	From  any    `json:"from"`
	To    any    `json:"to"`
}

// Note says something of an object.
type Note struct {
	Item

	Reason string `json:"reason"`
}

// Count tells what becomes of the objects of a kind.
type Count struct {
	Created   int `json:"created,omitempty"`
	Updated   int `json:"updated,omitempty"`
	Unchanged int `json:"unchanged,omitempty"`
	Skipped   int `json:"skipped,omitempty"`
	Failed    int `json:"failed,omitempty"`
}

// The actions of a change.
const (
	ActionCreate = "create"
	ActionUpdate = "update"
)

// Change is one object that is made or changed.
type Change struct {
	Item

	Action      string       `json:"action"`
	Differences []Difference `json:"differences,omitempty"` // of an update
}

// Report is what an import did, or would do.
type Report struct {
	DryRun bool `json:"dry_run"`
	// Unchanged: the document is the one that was loaded last, and was not looked at.
	Unchanged bool           `json:"unchanged,omitempty"`
	Counts    map[Kind]Count `json:"counts"`
	// Changes were made, unless DryRun.
	Changes []Change `json:"changes"`
	// Skipped is left out of the import, or stays as it is.
	Skipped []Note `json:"skipped"`
	// Failed are changes that were refused or whose outcome is not known; NotTried came behind them.
	Failed   []Note `json:"failed,omitempty"`
	NotTried int    `json:"not_tried,omitempty"`
}

func (r *Report) count(k Kind, add func(*Count)) {
	if r.Counts == nil {
		r.Counts = map[Kind]Count{}
	}
	c := r.Counts[k]
	add(&c)
	r.Counts[k] = c
}

// behind adds what was done by an earlier plan of the same document, which the plan of this report has found as it is to be.
func (r *Report) behind(before *Report) {
	r.Changes = append(slices.Clone(before.Changes), r.Changes...)
	for kind, was := range before.Counts {
		r.count(kind, func(c *Count) {
			c.Created += was.Created
			c.Updated += was.Updated
			c.Unchanged = max(0, c.Unchanged-was.Created-was.Updated)
		})
	}
}

// Summary is one line of words.
func (r *Report) Summary() string {
	if r.Unchanged {
		return "unchanged since they were loaded"
	}
	var sum Count
	for _, c := range r.Counts {
		sum.Created += c.Created
		sum.Updated += c.Updated
		sum.Unchanged += c.Unchanged
		sum.Skipped += c.Skipped
		sum.Failed += c.Failed
	}
	return fmt.Sprintf("%d created, %d updated, %d unchanged, %d skipped, %d failed, %d not tried",
		sum.Created, sum.Updated, sum.Unchanged, sum.Skipped, sum.Failed, r.NotTried)
}

// problemsMax bounds the problems that are told.
const problemsMax = 1000

// Problem is why a document cannot be imported.
type Problem struct {
	Item

	Reason string `json:"reason"`
	// Unsupported: it is right, and Warren does not have it. Such objects can be left out.
	Unsupported bool `json:"unsupported,omitempty"`
}

func (p Problem) String() string {
	if p.Kind == KindKey || p.Name == "" {
		return p.Reason
	}
	return p.Item.String() + ": " + p.Reason
}

// Invalid are all problems of a document, of which nothing was imported.
type Invalid struct{ Problems []Problem }

// problemsShown is how many problems the text of an error names.
const problemsShown = 20

func (e *Invalid) Error() string {
	var b strings.Builder
	unsupported := true
	for i, p := range e.Problems {
		unsupported = unsupported && p.Unsupported
		switch {
		case i < problemsShown:
			if i > 0 {
				b.WriteString("; ")
			}
			b.WriteString(strings.TrimRight(strings.ReplaceAll(p.String(), "\n", " "), " "))
		case i == problemsShown:
			fmt.Fprintf(&b, "; and %d more", len(e.Problems)-i)
		}
	}
	text := strings.TrimSuffix(b.String(), ".") // some of RabbitMQ's reasons are sentences
	b.Reset()
	b.WriteString(text + ". Nothing was imported")
	if unsupported {
		b.WriteString(" (skip_unsupported leaves out what Warren does not have)")
	}
	return b.String()
}

func invalid(format string, args ...any) *Invalid {
	return &Invalid{[]Problem{{Item: Item{Kind: KindKey}, Reason: fmt.Sprintf(format, args...)}}}
}
