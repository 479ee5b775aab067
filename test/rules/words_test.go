package rules

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Turns of phrase that a reader must decode have limits in words.txt, counted over the
// comments of the product. A limit falls with its count and is raised only with the
// pattern itself.
func TestWords(t *testing.T) {
	comments := productComments(t)
	f, err := os.Open("words.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	limits := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		number, pattern, _ := strings.Cut(line, " ")
		limit, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("words.txt: %q: want a number and a pattern", line)
		}
		limits++
		found := regexp.MustCompile(`(?i)`+strings.TrimSpace(pattern)).FindAllString(comments, -1)
		if len(found) > limit {
			t.Errorf("comments match %s %d times, and %d is the limit: write what happens, with a subject and a verb", pattern, len(found), limit)
		}
		if len(found) < limit-limit/10-2 {
			t.Errorf("comments match %s %d times only: lower its limit in words.txt to that", pattern, len(found))
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
