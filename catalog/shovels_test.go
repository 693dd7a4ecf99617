package catalog

import (
	"fmt"
	"strings"
	"testing"
)

func TestShovels(t *testing.T) {
	s := newScript(t)
	s.ok(&ActivateLevel{2})
	s.ok(&PutVhost{Vhost: Vhost{Name: "v"}})
	put := func(name, value string) *PutShovel { return &PutShovel{"v", name, "u", value} }

	first := s.ok(put("s", "{}"))
	if h := s.view().Shovel("v", "s"); !first.Changed || h == nil || *h != (Shovel{"v", "s", "u", "{}", first.Index}) {
		t.Fatalf("%+v, %+v", first, h)
	}
	if s.ok(put("s", "{}")).Changed || s.view().Shovel("v", "s").Since != first.Index {
		t.Error("the same value made another shovel")
	}
	second := s.ok(put("s", "[]"))
	if h := s.view().Shovel("v", "s"); !second.Changed || h.Value != "[]" || h.Since != second.Index {
		t.Errorf("%+v", h)
	}
	if s.ok(&DeleteShovel{"v", "s", first.Index}).Changed || s.view().Shovel("v", "s") == nil {
		t.Error("the shovel that had replaced another one was deleted for it")
	}
	if !s.ok(&DeleteShovel{"v", "s", second.Index}).Changed || s.view().Shovel("v", "s") != nil || s.ok(&DeleteShovel{Vhost: "v", Name: "s"}).Changed {
		t.Error("not deleted")
	}

	s.ok(put("s", "{}"))
	s.ok(&DeleteVhost{Name: "v"})
	for h := range s.view().Shovels() {
		t.Errorf("%+v is there without its vhost", h)
	}
	s.refused(put("s", "{}"), "NOT_FOUND - vhost v not found")

	s.ok(&PutVhost{Vhost: Vhost{Name: "v"}})
	for i := range ShovelsMax {
		s.ok(put(fmt.Sprint(i), "{}"))
	}
	s.refused(put("another", "{}"), "PRECONDITION_FAILED - there are 1000 shovels, the maximum")
	s.ok(put("7", "[]"))

	for _, bad := range []Command{
		put("", "{}"), put("s", ""), put("s", "{"), put("s", `"`+strings.Repeat("x", ShovelBytesMax)+`"`), put(strings.Repeat("x", 256), "{}"), &DeleteShovel{Vhost: "v"},
	} {
		if bad.validate() == nil {
			t.Errorf("%.80v was accepted", bad)
		}
	}
}

func TestShovelsNeedALevel(t *testing.T) {
	for _, c := range []Command{&PutShovel{}, &DeleteShovel{}} {
		if gate(c, 1) == nil || gate(c, 2) != nil {
			t.Errorf("%T", c)
		}
	}
}
