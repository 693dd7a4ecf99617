package management

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"
)

// fieldIndexes has for each type of struct where the fields are that its JSON has, by name: a list of ten thousand is sorted without
// making JSON of it.
var fieldIndexes sync.Map // reflect.Type to map[string][]int

func indexesOf(t reflect.Type) map[string][]int {
	if m, ok := fieldIndexes.Load(t); ok {
		return m.(map[string][]int) //nolint:forcetypeassert // nothing else is stored
	}
	m := map[string][]int{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" || f.Anonymous && name == "" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		if old, ok := m[name]; !ok || len(f.Index) < len(old) {
			m[name] = f.Index
		}
	}
	fieldIndexes.Store(t, m)
	return m
}

// fieldOf follows a path through the JSON form of v. The zero Value is what is not there.
func fieldOf(v reflect.Value, path []string) reflect.Value {
	for {
		for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
			v = v.Elem() // of nil: the zero Value
		}
		if len(path) == 0 || !v.IsValid() {
			return v
		}
		switch {
		case v.Kind() == reflect.Struct:
			index, ok := indexesOf(v.Type())[path[0]]
			if !ok {
				return reflect.Value{}
			}
			field, err := v.FieldByIndexErr(index)
			if err != nil {
				return reflect.Value{} // in an embedded struct that is not there
			}
			v = field
		case v.Kind() == reflect.Map && v.Type().Key().Kind() == reflect.String:
			v = v.MapIndex(reflect.ValueOf(path[0]).Convert(v.Type().Key()))
		default:
			return reflect.Value{}
		}
		path = path[1:]
	}
}

// keyOf returns what an item, a pointer to one, is sorted by.
func keyOf(item any, path []string) key {
	v := fieldOf(reflect.ValueOf(item), path)
	switch {
	case !v.IsValid():
		return key{}
	case v.Kind() == reflect.Bool:
		k := key{kind: keyBool}
		if v.Bool() {
			k.n = 1
		}
		return k
	case v.CanInt():
		return key{n: float64(v.Int())}
	case v.CanUint():
		return key{n: float64(v.Uint())}
	case v.CanFloat():
		return key{n: v.Float()}
	case v.Kind() == reflect.String:
		return key{kind: keyText, text: v.String()}
	}
	raw, err := json.Marshal(v.Interface())
	if err != nil || string(raw) == "null" {
		return key{}
	}
	return key{kind: keyOther, text: string(raw)}
}

// nameOf is the name of an item, a pointer to one; "" if it has none.
func nameOf(item any) string {
	if v := fieldOf(reflect.ValueOf(item), []string{"name"}); v.Kind() == reflect.String {
		return v.String()
	}
	return ""
}
