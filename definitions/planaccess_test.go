package definitions

import (
	"slices"
	"testing"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
)

// TestUserChangedMeanwhile: what a document does not say of a user, and somebody changes while it is imported, stays as that one wants it.
func TestUserChangedMeanwhile(t *testing.T) {
	former, now := auth.HashPassword("former"), auth.HashPassword("now")
	text := []byte(`{"users":[{"name":"u","tags":"monitoring"}]}`)
	for name, c := range map[string]struct {
		meanwhile catalog.Command
		want      *auth.User
	}{
		"another password": {&catalog.ChangeUser{User: auth.User{Name: "u", PasswordHash: now}, What: catalog.SetPassword}, &auth.User{PasswordHash: now, Tags: []string{"monitoring"}}},
		"deleted":          {&catalog.DeleteUser{Name: "u"}, nil},
	} {
		m := newModel(t)
		if _, err := m.Define(t.Context(), &catalog.PutUser{User: auth.User{Name: "u", PasswordHash: former, Tags: []string{"administrator"}}}); err != nil {
			t.Fatal(err)
		}
		d, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Make(d, m.view(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Define(t.Context(), c.meanwhile); err != nil {
			t.Fatal(err)
		}
		_, err = p.Run(t.Context(), m)
		u := m.view().User("u")
		switch {
		case c.want == nil:
			if err == nil || u != nil {
				t.Errorf("%s: %v, there is %+v", name, err, u)
			}
		case err != nil || u.PasswordHash != c.want.PasswordHash || !slices.Equal(u.Tags, c.want.Tags):
			t.Errorf("%s: %v, there is %+v", name, err, u)
		}
	}
}
