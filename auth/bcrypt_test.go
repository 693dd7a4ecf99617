package auth

import (
	"strings"
	"testing"
)

// Hashes of "test12" that libxcrypt made.
const (
	bcryptQuick = PasswordHash("$2b$04$abcdefghijklmnopqrstuu.DVVGLfP4tg2vyQ7TXKFqBaf6BeH1Ge")
	bcryptUsual = PasswordHash("$2y$10$N9qo8uLOickgx2ZMRZoMyexkBaT5I4gabYxk4rPwhv2UnLMTNZsZ6")
)

func TestBcrypt(t *testing.T) {
	for _, h := range []PasswordHash{bcryptQuick, bcryptUsual} {
		if err := h.Validate(); err != nil || !h.Matches("test12") || h.Matches("test13") || h.Matches("") || !h.Costly() || h.Algorithm() != Bcrypt {
			t.Errorf("%s: %v, %s", string(h), err, h.Algorithm())
		}
		for _, name := range []string{"bcrypt", "Bcrypt", "lavinmq_bcrypt"} {
			if err := h.CheckAlgorithm(name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if h.CheckAlgorithm(HashingAlgorithm) == nil || HashPassword("x").CheckAlgorithm(Bcrypt) == nil || PasswordHash("").CheckAlgorithm(Bcrypt) != nil {
			t.Error("another algorithm is taken for that of the hash")
		}
	}
	h, err := Hashing{BcryptCost: BcryptCostMin}.Hash("secret")
	if err != nil || !h.Matches("secret") || h.Matches("Secret") || h.BcryptCost() != BcryptCostMin || h.Validate() != nil {
		t.Errorf("%s: %v", string(h), err)
	}
	if h, err := (Hashing{BcryptCost: BcryptCostMin}).Hash(""); h != "" || err != nil {
		t.Errorf("an empty password has the hash %q: %v", string(h), err)
	}
	long := strings.Repeat("x", BcryptBytesMax)
	if h, err = (Hashing{BcryptCost: BcryptCostMin}).Hash(long); err != nil || !h.Matches(long) || h.Matches(long+"y") || h.Matches(long[1:]) {
		t.Errorf("72 bytes: %v", err)
	}
	if _, err := (Hashing{BcryptCost: BcryptCostMin}).Hash(long + "y"); err == nil || strings.Contains(err.Error(), "xxx") {
		t.Errorf("73 bytes: %v", err)
	}
}

// TestBcryptBounds refuses what would let a login take as long as somebody else likes.
func TestBcryptBounds(t *testing.T) {
	for name, h := range map[string]PasswordHash{
		"cost above":      "$2b$15$" + bcryptQuick[7:],
		"years":           "$2b$31$" + bcryptQuick[7:],
		"cost below":      "$2b$03$" + bcryptQuick[7:],
		"signed cost":     "$2b$+9$" + bcryptQuick[7:],
		"no cost":         "$2b$xx$" + bcryptQuick[7:],
		"2x":              "$2x$04$" + bcryptQuick[7:],
		"2":               "$2$04$a" + bcryptQuick[7:],
		"version 3":       "$3b$04$" + bcryptQuick[7:],
		"short":           bcryptQuick[:59],
		"long":            bcryptQuick + "a",
		"other character": bcryptQuick[:59] + "=",
		"argon2id":        "$argon2id$v=19$m=1048576,t=100,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNoaGFzaGhhc2g",
		"a dollar":        "$",
	} {
		if err := h.Validate(); err == nil {
			t.Errorf("%s is valid", name)
		}
		if h.Matches("test12") || h.BcryptCost() > 31 {
			t.Errorf("%s matches", name)
		}
	}
}

func TestHashing(t *testing.T) {
	for text, want := range map[string]Hashing{"sha256": {}, "bcrypt": {BcryptCost: 10}, "bcrypt:4": {BcryptCost: 4}, "bcrypt:14": {BcryptCost: 14}} {
		h, err := ParseHashing(text)
		if again, err2 := ParseHashing(h.String()); err != nil || err2 != nil || h != want || again != h {
			t.Errorf("%s: %+v %v", text, h, err)
		}
	}
	for _, text := range []string{"", "SHA256", "bcrypt:", "bcrypt:3", "bcrypt:15", "bcrypt:1e1", "sha256:5", "argon2id", "bcrypt:5:6"} {
		if h, err := ParseHashing(text); err == nil {
			t.Errorf("%q is %v", text, h)
		}
	}
	for range 20 {
		d := Hashing{BcryptCost: BcryptCostMin}.Decoy()
		if err := d.Validate(); err != nil || d.BcryptCost() != BcryptCostMin || d.Matches("x") {
			t.Fatalf("decoy %s: %v", string(d), err)
		}
	}
	if (Hashing{}).Decoy() != "" {
		t.Error("a decoy of what takes no time")
	}
}

// FuzzPasswordHash has hashes of any text validated and, where they are cheap, checked.
func FuzzPasswordHash(f *testing.F) {
	f.Add(string(bcryptQuick), "test12")
	f.Add(string(HashPassword("x")), "x")
	f.Add("$2b$31$", "y")
	f.Fuzz(func(t *testing.T, hash, password string) {
		h := PasswordHash(hash)
		valid := h.Validate() == nil
		if cost := h.BcryptCost(); valid && (cost > BcryptCostMax || h.Costly() != (cost > 0)) {
			t.Errorf("%q has cost %d", hash, cost)
		}
		if (!valid || h.BcryptCost() <= BcryptCostMin) && h.Matches(password) && !valid {
			t.Errorf("%q is no hash, and matches %q", hash, password)
		}
	})
}
