package main

import (
	"fmt"
	"testing"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/config"
)

// TestPasswordHashings has the settings know the hashings that package auth has, and no others.
func TestPasswordHashings(t *testing.T) {
	texts := []string{"", "sha256", "sha256:4", "bcrypt", "bcrypt:", "bcrypt:04", "bcrypt: 4", "argon2id"}
	for cost := range 33 {
		texts = append(texts, fmt.Sprintf("bcrypt:%d", cost))
	}
	for _, text := range texts {
		c := config.Default()
		c.PasswordHashing = text
		_, err := auth.ParseHashing(text)
		if (c.Validate() == nil) != (err == nil) {
			t.Errorf("%q: the settings say %v, auth %v", text, c.Validate(), err)
		}
	}
}
