package amqp

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// JSON of a table and back is the same JSON: the types become those that JSON has.
func TestTableJSON(t *testing.T) {
	table := Table{
		{Name: "text", Value: "t"},
		{Name: "bytes", Value: []byte("b")},
		{Name: "small", Value: int8(-1)},
		{Name: "large", Value: int64(math.MaxInt64)},
		{Name: "half", Value: 0.5},
		{Name: "nan", Value: math.NaN()},
		{Name: "when", Value: Timestamp(7)},
		{Name: "money", Value: Decimal{2, 314}},
		{Name: "void", Value: nil},
		{Name: "yes", Value: true},
		{Name: "list", Value: Array{int32(1), Table{{Name: "in", Value: "x"}}}},
	}
	const want = `{"bytes":"b","half":0.5,"large":9223372036854775807,"list":[1,{"in":"x"}],"money":3.14,"nan":"NaN","small":-1,"text":"t","void":null,"when":7,"yes":true}`
	first, err := json.Marshal(table.JSON())
	if err != nil || string(first) != want {
		t.Fatalf("%s, %v", first, err)
	}
	back := fromJSON(t, string(first), 3)
	second, err := json.Marshal(back.JSON())
	if err != nil || string(second) != want {
		t.Errorf("%s, %v", second, err)
	}
	if v, _ := back.Get("small"); v != int64(-1) {
		t.Errorf("small is a %T", v)
	}
}

func fromJSON(t *testing.T, text string, depth int) Table {
	t.Helper()
	table, err := TableFromJSON(objectOf(t, text), depth)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func objectOf(t *testing.T, text string) (object map[string]any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&object); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestTableFromJSONRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":[[1]]}`:                            "nested too deeply",
		`{"a":1e999}`:                            "number out of range: 1e999",
		`{"` + strings.Repeat("n", 256) + `":1}`: "a name is longer than 255 bytes",
	} {
		if _, err := TableFromJSON(objectOf(t, text), 2); err == nil || err.Error() != want {
			t.Errorf("%.20s: %v, want %q", text, err, want)
		}
	}
}
