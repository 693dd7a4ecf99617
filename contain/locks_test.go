package contain

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// untried says why a lock of the packages that work for clients is not tried.
var untried = map[string]string{
	"amqp.conn.sending":   "it is only tried by those who use it",
	"broker.commit.mu":    "of one transaction, whose client waits for it",
	"broker.dropLog.mu":   "of a leader",
	"broker.headStamp.mu": "of a question about one queue; held while a disk answers",
	"grpc.known.mu":       "of one call",
	"grpc.session.work":   "of one stream; held while a queue has no room",
}

// TestAllLocksAreTried finds the locks in the packages whose panics are contained: a new one is to be tried after a panic, or has a reason not to be.
func TestAllLocksAreTried(t *testing.T) {
	left := maps.Clone(untried)
	for _, dir := range []string{"broker", "gateway/amqp", "gateway/grpc"} {
		locks, source := locksOf(t, filepath.Join("..", dir))
		if len(locks) == 0 {
			t.Errorf("%s has no locks", dir)
		}
		for _, name := range locks {
			switch tried := strings.Contains(source, `"`+name+`"`); {
			case left[name] != "" && tried:
				t.Errorf("%s is tried, and has a reason not to be", name)
			case left[name] == "" && !tried:
				t.Errorf("%s is not tried", name)
			}
			delete(left, name)
		}
	}
	for name := range left {
		t.Errorf("%s is no lock", name)
	}
}

// locksOf names the locks of a folder's structs, and returns its source.
func locksOf(t *testing.T, dir string) (locks []string, source string) {
	t.Helper()
	files, err := fs.Glob(os.DirFS(dir), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		source += string(text)
		file, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if fields, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range fields.Fields.List {
					if isLock(f.Type) {
						for _, field := range f.Names {
							locks = append(locks, file.Name.Name+"."+spec.Name.Name+"."+field.Name)
						}
					}
				}
			}
			return true
		})
	}
	slices.Sort(locks)
	return locks, source
}

func isLock(e ast.Expr) bool {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && pkg.Name == "sync" && (sel.Sel.Name == "Mutex" || sel.Sel.Name == "RWMutex")
}
