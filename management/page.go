package management

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/warrenmq/warren/policy"
)

// Bounds of a page, as in RabbitMQ, and of what a list is filtered by.
const (
	pageSizeDefault = 100
	pageSizeMax     = 500
	filterBytesMax  = 1024
	sortDepthMax    = 8
	// expressionMax bounds the program of a regular expression, in instructions: a text of filterBytesMax becomes as many.
	expressionMax = 2048
)

// listQuery is how a request wants a list.
type listQuery struct {
	page, size int // page counts from 1; 0: all of it
	// match tells whether an item with the name is wanted; nil: all are.
	match func(name string) bool
	// sort is a path through an item's fields; empty: as the list comes.
	sort    []string
	reverse bool
	// columns are the fields to show; nil: all.
	columns columns
}

// Page is one page of a list.
type Page struct {
	Items         any `json:"items"`
	TotalCount    int `json:"total_count"`    // of the list
	FilteredCount int `json:"filtered_count"` // of these, with the name that was asked for
	ItemCount     int `json:"item_count"`     // on this page
	Page          int `json:"page"`           // counts from 1
	PageCount     int `json:"page_count"`
	PageSize      int `json:"page_size"`
}

// readListQuery reads a request's parameters. The error is a refusal with RabbitMQ's words.
func readListQuery(r *http.Request) (q listQuery, err error) {
	v := r.URL.Query()
	page, hasPage, err := pageNumber(v["page"])
	if err != nil {
		return q, err
	}
	size, hasSize, err := pageNumber(v["page_size"])
	if err != nil {
		return q, err
	}
	if hasPage {
		if !hasSize {
			size = pageSizeDefault
		}
		if page < 1 || size < 1 || size > pageSizeMax {
			text := "undefined"
			if hasSize {
				text = strconv.Itoa(size)
			}
			return q, &refusal{
				http.StatusBadRequest, "invalid_pagination_parameters",
				fmt.Sprintf("Invalid pagination parameters: page number %d, page size %s", page, text),
			}
		}
		q.page, q.size = page, size
	}
	if name := v.Get("name"); name != "" {
		match, err := matcher(name, v.Get("use_regex") == "true")
		if err != nil {
			return q, err
		}
		gone := r.Context()
		q.match = func(name string) bool { return gone.Err() == nil && match(name) }
	}
	if s := v.Get("sort"); s != "" {
		if q.sort = strings.Split(s, "."); len(q.sort) > sortDepthMax {
			return q, badRequest("sort: more than " + strconv.Itoa(sortDepthMax) + " names with dots between them")
		}
	}
	q.reverse = v.Get("sort_reverse") == "true"
	q.columns = wantedColumns(v.Get("columns"))
	return q, nil
}

// pageNumber reads a parameter that is a number, or is not there; an empty one is none. What is too large or too small for one is the largest or the smallest.
func pageNumber(values []string) (n int, has bool, err error) {
	if len(values) == 0 {
		return 0, false, nil
	}
	if n, err = strconv.Atoi(values[0]); err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, false, badRequest("Pagination parameters are invalid")
	}
	return n, true, nil
}

// matcher matches names that contain the text or an expression, in small letters or large. Expressions are RE2's: their time grows
// with the name and the expression's program, which is bounded, and not, as with Perl's, without bound.
func matcher(text string, expression bool) (func(string) bool, error) {
	if len(text) > filterBytesMax {
		return nil, badRequest("name: longer than " + strconv.Itoa(filterBytesMax) + " bytes")
	}
	if !expression {
		text = strings.ToLower(text)
		return func(name string) bool { return strings.Contains(strings.ToLower(name), text) }, nil
	}
	re, err := policy.Expression("(?i)"+text, expressionMax)
	if err != nil {
		return nil, badRequest("name: " + strings.Replace(err.Error(), "(?i)", "", 1))
	}
	return re.MatchString, nil
}

// paged returns of a list what the request asks for: sorted, filtered by name, a page of it, with the columns that are wanted. It is a
// [Page] if the request names one, else an array. list is in the order that it has without "sort"; it is changed.
func paged[T any](r *http.Request, list []T) (any, error) {
	q, err := readListQuery(r)
	if err != nil {
		return nil, err
	}
	if list == nil {
		list = []T{} // [] in JSON
	}
	total := len(list)
	if q.match != nil {
		list = slices.DeleteFunc(list, func(item T) bool { return !q.match(nameOf(&item)) })
	}
	q.order(len(list), func(i int) key { return keyOf(&list[i], q.sort) }, func(by []int) {
		sorted := make([]T, len(by))
		for to, from := range by {
			sorted[to] = list[from]
		}
		list = sorted
	})
	from, to, err := q.cut(len(list))
	if err != nil {
		return nil, err
	}
	items, err := pick(list[from:to], q.columns)
	if err != nil {
		return nil, err
	}
	return q.answer(items, total, len(list), to-from), nil
}

// order sorts n items by their keys and calls apply with the places from which they come, unless they are to stay as they are.
func (q *listQuery) order(n int, of func(i int) key, apply func(by []int)) {
	if len(q.sort) == 0 && !q.reverse {
		return
	}
	by := make([]int, n)
	for i := range by {
		by[i] = i
	}
	if len(q.sort) > 0 {
		keys := make([]key, n)
		for i := range keys {
			keys[i] = of(i)
		}
		slices.SortStableFunc(by, func(a, b int) int { return keys[a].compare(keys[b]) })
	}
	if q.reverse {
		slices.Reverse(by) // equal ones too, as RabbitMQ does
	}
	apply(by)
}

// cut returns which of n items are on the page.
func (q *listQuery) cut(n int) (from, to int, err error) {
	if q.page == 0 {
		return 0, n, nil
	}
	if q.page-1 > n/q.size {
		return 0, 0, &refusal{
			http.StatusBadRequest, "page_out_of_range", fmt.Sprintf("Page out of range, page: %d page size: %d, len: %d", q.page, q.size, n),
		}
	}
	from = (q.page - 1) * q.size
	return from, min(from+q.size, n), nil
}

// answer puts items, of total and filtered ones, into the form that was asked for.
func (q *listQuery) answer(items any, total, filtered, n int) any {
	if q.page == 0 {
		return items
	}
	return Page{
		Items: items, TotalCount: total, FilteredCount: filtered, ItemCount: n,
		Page: q.page, PageCount: (filtered + q.size - 1) / q.size, PageSize: q.size,
	}
}

// pick returns the items with the wanted columns only.
func pick[T any](list []T, wanted columns) (any, error) {
	if wanted == nil {
		return list, nil
	}
	out := make([]json.RawMessage, len(list))
	for i := range list {
		var raw bytes.Buffer
		if err := encode(&raw, &list[i]); err != nil {
			return nil, err
		}
		var err error
		if out[i], err = prune(raw.Bytes(), wanted); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// narrowed leaves of a single object the columns that a request asks for, as RabbitMQ does; lists come with theirs ([paged]).
func narrowed(r *http.Request, body any) (any, error) {
	wanted := wantedColumns(r.URL.Query().Get("columns"))
	if wanted == nil || r.Method != http.MethodGet {
		return body, nil
	}
	switch body.(type) {
	case nil, Page, attachment, created, underWay:
		return body, nil
	}
	var raw bytes.Buffer
	if err := encode(&raw, body); err != nil {
		return nil, err
	}
	if raw.Bytes()[0] != '{' {
		return body, nil
	}
	return prune(raw.Bytes(), wanted)
}

// columns are the wanted fields of an object by name, and what of each is wanted; nil: all of it.
type columns map[string]columns

// wantedColumns reads the parameter: paths with dots between their names.
func wantedColumns(s string) columns {
	if s == "" {
		return nil
	}
	wanted := columns{}
	for c := range strings.SplitSeq(s, ",") {
		wanted.add(c)
	}
	return wanted
}

// add has the field at the end of a path shown. One that is wanted as a whole stays so.
func (c columns) add(path string) {
	for {
		name, rest, more := strings.Cut(path, ".")
		below, wanted := c[name]
		switch {
		case !more:
			c[name] = nil
			return
		case !wanted:
			below = columns{}
			c[name] = below
		case below == nil:
			return
		}
		c, path = below, rest
	}
}

// prune leaves of an object, or of each object in an array, the fields that are wanted. Other values stay.
func prune(raw json.RawMessage, wanted columns) (json.RawMessage, error) {
	if len(wanted) == 0 || len(raw) == 0 {
		return raw, nil
	}
	var buf bytes.Buffer
	switch raw[0] {
	case '{':
		var object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &object); err != nil {
			return nil, err
		}
		for name, value := range object {
			below, ok := wanted[name]
			if !ok {
				delete(object, name)
				continue
			}
			var err error
			if object[name], err = prune(value, below); err != nil {
				return nil, err
			}
		}
		err := encode(&buf, object)
		return buf.Bytes(), err
	case '[':
		var array []json.RawMessage
		if err := json.Unmarshal(raw, &array); err != nil {
			return nil, err
		}
		for i := range array {
			var err error
			if array[i], err = prune(array[i], wanted); err != nil {
				return nil, err
			}
		}
		err := encode(&buf, array)
		return buf.Bytes(), err
	}
	return raw, nil
}

// encode writes JSON as people read it: "<" stays "<".
func encode(buf *bytes.Buffer, v any) error {
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// key is what an item is sorted by. Numbers come first, then booleans, texts and the rest, as RabbitMQ orders Erlang's terms;
// what is not there counts as 0.
type key struct {
	kind int
	n    float64
	text string
}

const (
	keyNumber = iota
	keyBool
	keyText
	keyOther // by its JSON
)

func (k key) compare(other key) int {
	return cmp.Or(cmp.Compare(k.kind, other.kind), cmp.Compare(k.n, other.n), strings.Compare(k.text, other.text))
}
