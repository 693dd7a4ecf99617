package model

import (
	"testing"
	"time"
)

func TestRegister(t *testing.T) {
	declare := func(v string, call, ret int64) NameOp {
		return NameOp{Kind: Declare, Value: v, Call: call, Return: ret}
	}
	refused := func(o NameOp) NameOp { o.Refused = true; return o }
	unknown := func(o NameOp) NameOp { o.Unknown = true; return o }
	remove := func(call, ret int64) NameOp { return NameOp{Kind: Delete, Call: call, Return: ret} }
	read := func(v string, call, ret int64) NameOp { return NameOp{Kind: Read, Value: v, Call: call, Return: ret} }
	exists := func(call, ret int64) NameOp { return NameOp{Kind: Exists, Call: call, Return: ret} }
	for name, tc := range map[string]struct {
		ops  []NameOp
		want bool
	}{
		"declared, seen and deleted":      {[]NameOp{declare("a", 1, 2), exists(3, 4), read("a", 5, 6), remove(7, 8), refused(exists(9, 10))}, true},
		"declared twice":                  {[]NameOp{declare("a", 1, 2), declare("a", 3, 4), read("a", 5, 6)}, true},
		"declared otherwise":              {[]NameOp{declare("a", 1, 2), refused(declare("b", 3, 4))}, true},
		"refused, and nothing is there":   {[]NameOp{refused(declare("b", 3, 4))}, false},
		"refused, and it is the same":     {[]NameOp{declare("a", 1, 2), refused(declare("a", 3, 4))}, false},
		"both declared":                   {[]NameOp{declare("a", 1, 2), declare("b", 3, 4)}, false},
		"both declared, once deleted":     {[]NameOp{declare("a", 1, 2), remove(2, 5), declare("b", 3, 4)}, true},
		"not there after it was declared": {[]NameOp{declare("a", 1, 2), refused(exists(3, 4))}, false},
		"there after it was deleted":      {[]NameOp{declare("a", 1, 2), remove(3, 4), exists(5, 6)}, false},
		"there while it is deleted":       {[]NameOp{declare("a", 1, 2), remove(3, 6), exists(4, 5)}, true},
		"the old one is read":             {[]NameOp{declare("a", 1, 2), remove(3, 4), declare("b", 5, 6), read("a", 7, 8)}, false},
		"refused for the old one":         {[]NameOp{declare("a", 1, 2), remove(3, 4), declare("b", 5, 6), refused(declare("b", 7, 8))}, false},
		"unknown, and there":              {[]NameOp{unknown(declare("a", 1, 2)), exists(3, 4)}, true},
		"unknown, and there later":        {[]NameOp{unknown(declare("a", 1, 2)), refused(exists(3, 4)), exists(5, 6)}, true},
		"unknown, and not there":          {[]NameOp{unknown(declare("a", 1, 2)), refused(exists(3, 4))}, true},
		"unknown, there and gone again":   {[]NameOp{unknown(declare("a", 1, 2)), exists(3, 4), refused(exists(5, 6))}, false},
		"unknown delete":                  {[]NameOp{declare("a", 1, 2), unknown(remove(3, 4)), exists(5, 6), refused(exists(7, 8))}, true},
		"unknown delete, and back":        {[]NameOp{declare("a", 1, 2), unknown(remove(3, 4)), refused(exists(5, 6)), exists(7, 8)}, false},
		"an unknown read says nothing":    {[]NameOp{unknown(exists(1, 2))}, true},
	} {
		if got, undecided := Register(tc.ops, time.Minute); got != tc.want || undecided {
			t.Errorf("%s: %v, undecided %v", name, got, undecided)
		}
	}
}
