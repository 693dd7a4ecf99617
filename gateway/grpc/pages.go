package grpc

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strings"
)

// pageMax is how many entries a page of a list has at most.
const pageMax = 1000

// tokenForm begins every token, so that none is empty.
const tokenForm = "1"

// page cuts the next page out of a list, in the order of its keys, which are unique; next is the token of the one behind, "" if nothing
// is. What comes and goes between two pages moves nothing: a token is the last key. The error is a *refusal.
func page[T any](list []T, size uint32, token string, key func(T) string) (cut []T, next string, err error) {
	if size > pageMax {
		return nil, "", invalid("page_size %d is more than %d", size, pageMax)
	}
	list = slices.Clone(list)
	if token != "" {
		raw, err := base64.RawURLEncoding.DecodeString(token)
		after, ok := strings.CutPrefix(string(raw), tokenForm)
		if err != nil || !ok {
			return nil, "", invalid("'%s' is no page_token", token)
		}
		list = slices.DeleteFunc(list, func(x T) bool { return key(x) <= after })
	}
	slices.SortFunc(list, func(a, b T) int { return strings.Compare(key(a), key(b)) })
	if n := int(cmp.Or(size, pageMax)); len(list) > n {
		list = list[:n]
		next = base64.RawURLEncoding.EncodeToString([]byte(tokenForm + key(list[n-1])))
	}
	return list, next, nil
}

// keyOf makes one key of several names, which are in the order of the names.
func keyOf(names ...string) string { return strings.Join(names, "\x00") }
