package management

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// pageItem has every kind of field that lists are sorted by.
type pageItem struct {
	Name  string         `json:"name"`
	N     uint64         `json:"n"`
	Float float64        `json:"float,omitempty"`
	On    bool           `json:"on"`
	Rate  *pageRate      `json:"rate_details,omitempty"`
	Extra map[string]any `json:"extra"`
	List  []string       `json:"list"`
	*pageStats
	hidden int
}

type pageRate struct {
	Rate float64 `json:"rate"`
}

type pageStats struct {
	Memory int64 `json:"memory"`
}

func pageItems() []pageItem {
	return []pageItem{
		{Name: "b", N: 2, Rate: &pageRate{0.5}, Extra: map[string]any{"x": map[string]any{"y": "z"}}, List: []string{"<1>", "2"}, pageStats: &pageStats{7}},
		{Name: "A", N: 3, On: true, Float: -1, Extra: map[string]any{"x": "text"}},
		{Name: "c", N: 1, Rate: &pageRate{9}, Extra: map[string]any{"x": 3.0}, pageStats: &pageStats{-1}},
		{Name: "bb", N: 2, Float: 2, Extra: map[string]any{"x": true}, List: []string{}},
	}
}

// askPage returns the answer's status and JSON.
func askPage[T any](t testing.TB, query string, items []T) (int, string) {
	t.Helper()
	a := &API{}
	r := httptest.NewRequest(http.MethodGet, "/api/x?"+query, http.NoBody)
	w := httptest.NewRecorder()
	turn, err := newRoom(answersMade, 0).begin(r, new(sizes))
	if err != nil {
		t.Fatal(err)
	}
	body, err := paged(r, items)
	if err != nil {
		a.refuse(w, err)
	} else {
		a.answer(w, body, turn)
	}
	return w.Code, w.Body.String()
}

// TestColumnsOfAnObject narrows what is no list.
func TestColumnsOfAnObject(t *testing.T) {
	item := pageItems()[0]
	for query, want := range map[string]string{
		"columns=name":         `{"name":"b"}`,
		"columns=extra.x,name": `{"extra":{"x":{"y":"z"}},"name":"b"}`,
		"columns=none":         `{}`,
	} {
		body, err := narrowed(httptest.NewRequest(http.MethodGet, "/api/x/b?"+query, http.NoBody), &item)
		w := httptest.NewRecorder()
		(&API{}).write(w, http.StatusOK, body)
		if err != nil || w.Body.String() != want {
			t.Errorf("%s: %s, %v", query, w.Body.String(), err)
		}
	}
	for _, body := range []any{nil, &item, []string{"a"}, Page{}, created{}} {
		for method, query := range map[string]string{http.MethodPut: "columns=name", http.MethodGet: ""} {
			if got, err := narrowed(httptest.NewRequest(method, "/api/x/b?"+query, http.NoBody), body); err != nil || !reflect.DeepEqual(got, body) {
				t.Errorf("%T: %v, %v", body, got, err)
			}
		}
	}
}

func TestPaged(t *testing.T) {
	names := func(body string) string {
		var list []struct{ Name string }
		raw := []byte(body)
		if bytes.HasPrefix(raw, []byte(`{`)) {
			var page struct{ Items json.RawMessage }
			if err := json.Unmarshal(raw, &page); err != nil {
				t.Fatal(err)
			}
			raw = page.Items
		}
		if err := json.Unmarshal(raw, &list); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		var out []string
		for _, i := range list {
			out = append(out, i.Name)
		}
		return strings.Join(out, " ")
	}
	for query, want := range map[string]string{
		"":                            "b A c bb",
		"sort=name":                   "A b bb c",
		"sort=name&sort_reverse=true": "c bb b A",
		"sort_reverse=true":           "bb c A b",
		"sort=n":                      "c b bb A",
		"sort=n&sort_reverse=true":    "A bb b c",
		"sort=float":                  "A b c bb",
		"sort=on":                     "b c bb A",
		"sort=rate_details.rate&sort_reverse=true": "c b bb A",
		"sort=memory":                         "c A bb b",
		"sort=extra.x":                        "c bb A b",
		"sort=extra.x.y":                      "A c bb b",
		"sort=hidden":                         "b A c bb",
		"sort=no.such.field":                  "b A c bb",
		"sort=list":                           "A c b bb",
		"name=B":                              "b bb",
		"name=^b&use_regex=true":              "b bb",
		"name=^b":                             "",
		"page=1&page_size=3":                  "b A c",
		"page=2&page_size=3":                  "bb",
		"page=2&page_size=4":                  "",
		"page=1&page_size=2&sort=n&name=b":    "b bb",
		"page=1&name=nothing&pagination=true": "",
		"page_size=2":                         "b A c bb",
	} {
		if status, body := askPage(t, query, pageItems()); status != 200 || names(body) != want {
			t.Errorf("%s: %d %q, want %q", query, status, names(body), want)
		}
	}
	for query, want := range map[string]string{
		"page=2&page_size=3&name=b&sort=n&columns=name,n":                         `{"error":"page_out_of_range","reason":"Page out of range, page: 2 page size: 3, len: 2"}`,
		"page=1&page_size=1&name=b&sort=n&columns=name,n":                         `{"items":[{"n":2,"name":"b"}],"total_count":4,"filtered_count":2,"item_count":1,"page":1,"page_count":2,"page_size":1}`,
		"page=1&name=x&columns=name":                                              `{"items":[],"total_count":4,"filtered_count":0,"item_count":0,"page":1,"page_count":0,"page_size":100}`,
		"name=bb&columns=rate_details.rate,list,no":                               `[{"list":[]}]`,
		"name=^b$&use_regex=true&columns=rate_details.rate,list,extra.x.y,memory": `[{"extra":{"x":{"y":"z"}},"list":["<1>","2"],"memory":7,"rate_details":{"rate":0.5}}]`,
		"name=A&columns=extra,extra.x":                                            `[{"extra":{"x":"text"}}]`,
		"name=nothing":                                                            `[]`,
		"page=x":                                                                  `{"error":"bad_request","reason":"Pagination parameters are invalid"}`,
		"page=1&page_size=ten":                                                    `{"error":"bad_request","reason":"Pagination parameters are invalid"}`,
		"page=":                                                                   `{"error":"bad_request","reason":"Pagination parameters are invalid"}`,
		"page_size=":                                                              `{"error":"bad_request","reason":"Pagination parameters are invalid"}`,
		"page_size=abc":                                                           `{"error":"bad_request","reason":"Pagination parameters are invalid"}`,
		"page=99999999999999999999":                                               `{"error":"page_out_of_range","reason":"Page out of range, page: 9223372036854775807 page size: 100, len: 4"}`,
		"page=1&page_size=-99999999999999999999":                                  `{"error":"invalid_pagination_parameters","reason":"Invalid pagination parameters: page number 1, page size -9223372036854775808"}`,
		"page=0":                                                                  `{"error":"invalid_pagination_parameters","reason":"Invalid pagination parameters: page number 0, page size undefined"}`,
		"page=-1&page_size=5":                                                     `{"error":"invalid_pagination_parameters","reason":"Invalid pagination parameters: page number -1, page size 5"}`,
		"page=1&page_size=501":                                                    `{"error":"invalid_pagination_parameters","reason":"Invalid pagination parameters: page number 1, page size 501"}`,
		"page=1&page_size=0":                                                      `{"error":"invalid_pagination_parameters","reason":"Invalid pagination parameters: page number 1, page size 0"}`,
		"page=9223372036854775807":                                                `{"error":"page_out_of_range","reason":"Page out of range, page: 9223372036854775807 page size: 100, len: 4"}`,
		"name=(&use_regex=true":                                                   `{"error":"bad_request","reason":"name: error parsing regexp: missing closing ): ` + "`(`" + `"}`,
		"sort=" + strings.Repeat("a.", 9):                                         `{"error":"bad_request","reason":"sort: more than 8 names with dots between them"}`,
	} {
		if _, body := askPage(t, query, pageItems()); body != want {
			t.Errorf("%s: %s, want %s", query, body, want)
		}
	}
	if status, _ := askPage(t, "use_regex=true&name="+strings.Repeat("a", 2000), pageItems()); status != 400 {
		t.Errorf("a long expression: %d", status)
	}
	if _, body := askPage[pageItem](t, "", nil); body != "[]" {
		t.Errorf("no list: %s", body)
	}
}

// Pages one behind the other are the list that a naive sort makes, whatever it holds.
func TestPagedProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		items := make([]pageItem, rapid.IntRange(0, 30).Draw(rt, "items"))
		for i := range items {
			items[i] = pageItem{
				Name: rapid.StringMatching(`[a-cA-C]{0,3}`).Draw(rt, "name"), N: rapid.Uint64Range(0, 4).Draw(rt, "n"), hidden: i,
			}
			if rapid.Bool().Draw(rt, "has rate") {
				items[i].Rate = &pageRate{float64(rapid.IntRange(-2, 2).Draw(rt, "rate"))}
			}
		}
		name := rapid.SampledFrom([]string{"", "a", "B", "zz"}).Draw(rt, "filter")
		by := rapid.SampledFrom([]string{"", "name", "n", "rate_details.rate"}).Draw(rt, "sort")
		reverse := rapid.Bool().Draw(rt, "reverse")
		size := rapid.IntRange(1, 12).Draw(rt, "size")

		want := slices.DeleteFunc(slices.Clone(items), func(i pageItem) bool { return !strings.Contains(strings.ToLower(i.Name), strings.ToLower(name)) })
		rate := func(i pageItem) float64 {
			if i.Rate == nil {
				return 0
			}
			return i.Rate.Rate
		}
		slices.SortStableFunc(want, func(a, b pageItem) int {
			switch by {
			case "name":
				return strings.Compare(a.Name, b.Name)
			case "n":
				return cmp.Compare(a.N, b.N)
			case "rate_details.rate":
				return cmp.Compare(rate(a), rate(b))
			}
			return 0
		})
		if reverse {
			slices.Reverse(want)
		}
		pages := max(1, (len(want)+size-1)/size)
		var got []pageItem
		for page := 1; page <= pages; page++ {
			q := url.Values{"page": {strconv.Itoa(page)}, "page_size": {strconv.Itoa(size)}, "name": {name}, "sort": {by}, "sort_reverse": {strconv.FormatBool(reverse)}}
			body, err := paged(httptest.NewRequest(http.MethodGet, "/x?"+q.Encode(), http.NoBody), slices.Clone(items))
			if err != nil {
				rt.Fatal(err)
			}
			p, ok := body.(Page)
			if !ok {
				rt.Fatalf("%T", body)
			}
			part, ok := p.Items.([]pageItem)
			if !ok || p.TotalCount != len(items) || p.FilteredCount != len(want) || p.ItemCount != len(part) || p.PageCount != (len(want)+size-1)/size {
				rt.Fatalf("%+v", p)
			}
			got = append(got, part...)
		}
		places := func(list []pageItem) (out []int) {
			for _, i := range list {
				out = append(out, i.hidden)
			}
			return out
		}
		if !slices.Equal(places(got), places(want)) {
			rt.Fatalf("got %v, want %v", places(got), places(want))
		}
	})
}

// Every list that the API has takes the parameters.
func TestListsArePaged(t *testing.T) {
	f := newFakeCluster("a")
	for i := range 5 {
		f.nodes["a"].list = append(f.nodes["a"].list, Connection{Name: fmt.Sprint(i), User: "admin", Channels: 9 - i, ClientProperties: map[string]any{"n": i}})
	}
	if _, body, _ := f.do(t, "a", "admin", "GET", "/api/connections?page=2&page_size=2&sort=channels&columns=name,client_properties.n"); body !=
		`{"items":[{"client_properties":{"n":2},"name":"2"},{"client_properties":{"n":1},"name":"1"}],"total_count":5,"filtered_count":5,"item_count":2,"page":2,"page_count":3,"page_size":2}` {
		t.Error(body)
	}
}

func FuzzListQuery(f *testing.F) {
	f.Add("page=1&page_size=2&sort=a.b&columns=a.b,,c&name=(a+)+$&use_regex=true")
	f.Add("columns=.,..&sort=.&page=")
	f.Fuzz(func(t *testing.T, query string) {
		r := httptest.NewRequest(http.MethodGet, "/x", http.NoBody)
		r.URL.RawQuery = query
		body, err := paged(r, pageItems())
		if err == nil {
			if _, err := json.Marshal(body); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// BenchmarkPaged makes one page of ten thousand items.
func BenchmarkPaged(b *testing.B) {
	items := make([]pageItem, 10_000)
	for i := range items {
		items[i] = pageItem{Name: strconv.Itoa(i * 7919 % 10_000), N: uint64(i), Rate: &pageRate{float64(i)}}
	}
	for _, by := range []string{"name", "rate_details.rate"} {
		b.Run(by, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, "/x?page=5&page_size=100&sort="+by, http.NoBody)
			for b.Loop() {
				if _, err := paged(r, slices.Clone(items)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
