//go:build level1

package level

// Now is that of the program before: the build tag stands for it in tests.
const Now = 1
