package model

import (
	"testing"
	"time"
)

func firm(token, asked, got, left int64) Tenure {
	return Tenure{Token: token, Asked: asked, Got: got, Left: left}
}

func lost(token, asked, got int64) Tenure {
	return Tenure{Token: token, Asked: asked, Got: got, Left: got + 100, Lost: true}
}

func TestMutex(t *testing.T) {
	for name, tc := range map[string]struct {
		tenures []Tenure
		want    bool
	}{
		"nobody":                         {nil, true},
		"one after the other":            {[]Tenure{firm(0, 1, 2, 3), firm(1, 4, 5, 6)}, true},
		"asked for while held":           {[]Tenure{firm(0, 1, 2, 5), firm(1, 3, 6, 8)}, true},
		"tokens may be left out":         {[]Tenure{firm(0, 1, 2, 5), firm(7, 3, 6, 8)}, true},
		"two at a time":                  {[]Tenure{firm(0, 1, 2, 9), firm(1, 3, 4, 10)}, false},
		"the first never ends":           {[]Tenure{firm(0, 1, 2, Never), firm(1, 3, 4, 10)}, false},
		"the same token":                 {[]Tenure{firm(3, 1, 2, 3), firm(3, 4, 5, 6)}, false},
		"a smaller token":                {[]Tenure{firm(3, 1, 2, 3), firm(2, 4, 5, 6)}, false},
		"lost at any time":               {[]Tenure{lost(0, 1, 2), firm(1, 3, 4, 10)}, true},
		"lost, and told of late":         {[]Tenure{lost(0, 1, 9), firm(1, 3, 4, 10)}, true},
		"lost, the same token":           {[]Tenure{lost(0, 1, 2), firm(0, 3, 4, 10)}, false},
		"lost, the same token, both":     {[]Tenure{lost(0, 1, 2), firm(0, 3, 4, 10), firm(0, 5, 6, 12)}, false},
		"lost, a smaller token":          {[]Tenure{lost(5, 1, 2), firm(4, 3, 4, 10)}, false},
		"lost, then two at a time":       {[]Tenure{lost(0, 1, 2), firm(1, 3, 4, 10), firm(2, 5, 6, 12)}, false},
		"the last ones came in two ways": {[]Tenure{firm(0, 1, 2, 3), firm(1, 4, 5, 6), firm(2, 5, 8, 9), firm(3, 6, 7, 12)}, false},
	} {
		if got, unknown := Mutex(tc.tenures, time.Minute); got != tc.want || unknown {
			t.Errorf("%s: %v, unknown %v", name, got, unknown)
		}
	}
}

// TestMutexLong: a history of an hour is checked in no time.
func TestMutexLong(t *testing.T) {
	var tenures []Tenure
	for i := range int64(5000) {
		tenures = append(tenures, Tenure{Token: i, Asked: 10*i - 25, Got: 10 * i, Left: 10*i + 3})
	}
	begun := time.Now()
	if ok, _ := Mutex(tenures, time.Minute); !ok {
		t.Error("a good history is bad")
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}
