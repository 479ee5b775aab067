package rules

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "lower the limits of words.txt to what is found") //rules:constant set by the test's flags

// Turns of phrase that a reader must decode have limits in words.txt, counted over the
// comments of the product. A limit falls with its count and is raised only with the
// pattern itself.
func TestWords(t *testing.T) {
	comments := productComments(t)
	text, err := os.ReadFile("words.txt")
	if err != nil {
		t.Fatal(err)
	}
	limits := 0
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "#") || line == "" {
			continue
		}
		number, pattern, _ := strings.Cut(line, " ")
		limit, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("words.txt: %q: want a number and a pattern", line)
		}
		limits++
		found := len(regexp.MustCompile(`(?i)`+pattern).FindAllString(comments, -1))
		if found > limit {
			t.Errorf("comments match %s %d times, and %d is the limit: write what happens, with a subject and a verb", pattern, found, limit)
		} else if found < limit*3/4 && !*update {
			t.Errorf("comments match %s %d times only: lower its limit by go test ./test/rules -run TestWords -update", pattern, found)
		}
		lines[i] = fmt.Sprint(min(found, limit), " ", pattern)
	}
	if *update {
		if err := os.WriteFile("words.txt", []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if limits < 10 {
		t.Errorf("words.txt has %d limits only", limits)
	}
}

// productComments is the text of every comment of the product.
func productComments(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for name, p := range theTree(t).folders {
		if strings.HasPrefix(name, "test/") {
			continue
		}
		for _, s := range p.prod {
			for _, group := range s.file.Comments {
				for _, c := range group.List {
					if !strings.HasPrefix(c.Text, "//go:") && !strings.HasPrefix(c.Text, "//nolint") {
						fmt.Fprintln(&b, strings.TrimPrefix(c.Text, "//"))
					}
				}
			}
		}
	}
	return b.String()
}

// The product fits into the number of lines that budget.txt names: Go files without
// tests and without test/.
func TestBudget(t *testing.T) {
	text, err := os.ReadFile("budget.txt")
	if err != nil {
		t.Fatal(err)
	}
	budget, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatalf("budget.txt: want a number of lines: %v", err)
	}
	h := theTree(t)
	lines := 0
	for name, p := range h.folders {
		if strings.HasPrefix(name, "test/") {
			continue
		}
		for _, s := range p.prod {
			lines += h.fset.File(s.file.Pos()).LineCount()
		}
	}
	if lines > budget {
		t.Errorf("the product has %d lines of Go, and the budget is %d: remove what the change makes needless", lines, budget)
	}
	t.Logf("%d lines of Go, budget %d", lines, budget)
}
