package rules

import (
	"bufio"
	"fmt"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// groups are the groups of rows of the requirements and of the failure
// catalogue, and how many rows each has.
var groups = map[string]int{
	"AR": 19, "T": 38, "ID": 12, "RG": 28, "OF": 30, "TR": 7, "NT": 21, "SW": 9, "SH": 22, "BG": 14, "AD": 20, "MR": 9,
	"CG": 3, "TL": 8, "AT": 19, "TO": 21, "TS": 11, "MT": 11, "SB": 10, "LM": 9, "EX": 13, "HK": 20, "SK": 6, "PT": 11,
	"SM": 3, "TX": 13, "TP": 5, "RA": 18, "TM": 18, "WF": 3, "MC": 12, "MM": 5, "DR": 14, "TK": 16, "CR": 9, "SI": 21,
	"SC": 12, "UI": 19, "EV": 8, "EN": 8, "ER": 15, "C": 75, "D": 21, "H": 61,
}

// faults are the groups of the failure catalogue, written without a dash: P9.
var faults = map[string]int{"P": 23, "S": 21, "O": 12, "T": 6, "H": 11, "A": 15, "M": 12, "R": 13, "G": 16, "C": 6}

var rowForm = regexp.MustCompile(`^([A-Z]{1,2})(?:-(\d{2,})|(\d{1,2}))$`)

// checkRow says what is wrong with the name of a row.
func checkRow(id string) error {
	m := rowForm.FindStringSubmatch(id)
	if m == nil {
		return fmt.Errorf("%q is no row: rows look like T-16, ID-02 or P9", id)
	}
	known, number := groups, m[2]
	if number == "" {
		known, number = faults, m[3]
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > known[m[1]] || (m[2] == "" && m[3][0] == '0') {
		return fmt.Errorf("there is no row %s", id)
	}
	return nil
}

// rowLine is one line of docs/rows.md.
type rowLine struct {
	at                     string
	row, state, test, note string
}

// needs is what a line of each state must have.
var needs = map[string]struct{ test, note bool }{
	"shown":           {test: true},
	"partly":          {test: true, note: true},
	"not built":       {note: true},
	"decided against": {note: true},
}

func readRows(file string) ([]rowLine, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []rowLine
	in := bufio.NewScanner(f)
	head := false
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSpace(in.Text())
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 4 {
			return nil, fmt.Errorf("%s:%d: %d columns, want 4", file, n, len(cells))
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if strings.Trim(cells[0], "-:") == "" || cells[0] == "row" {
			head = true
			continue
		}
		out = append(out, rowLine{fmt.Sprintf("%s:%d", file, n), cells[0], cells[1], cells[2], cells[3]})
	}
	if !head {
		return nil, fmt.Errorf("%s has no table", file)
	}
	return out, in.Err()
}

// testsOf are the names of the tests, fuzz targets, examples and benchmarks of
// a package.
func testsOf(p *folder) []string {
	var out []string
	for _, s := range p.tests {
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if ok && fn.Recv == nil && regexp.MustCompile(`^(Test|Fuzz|Example|Benchmark)`).MatchString(fn.Name.Name) {
				out = append(out, fn.Name.Name)
			}
		}
	}
	return out
}

// checkTest says what is wrong with the place that is said to prove a row:
// folder:TestName, or the path of a script of the command line.
func checkTest(h *tree, ref string) error {
	if path.Ext(ref) == ".txtar" {
		_, err := os.Stat(filepath.Join(root, ref))
		return err
	}
	dir, name, ok := strings.Cut(ref, ":")
	if !ok {
		return fmt.Errorf("%q is not folder:TestName", ref)
	}
	p := h.folders[dir]
	if p == nil {
		return fmt.Errorf("there is no package %q", dir)
	}
	if !slices.Contains(testsOf(p), name) {
		return fmt.Errorf("package %s has no test %s", dir, name)
	}
	return nil
}

func checkLine(h *tree, l rowLine) error {
	if err := checkRow(l.row); err != nil {
		return err
	}
	need, known := needs[l.state]
	switch {
	case !known:
		return fmt.Errorf("row %s: %q is no state", l.row, l.state)
	case need.test && l.test == "–":
		return fmt.Errorf("row %s is %s, and has no test", l.row, l.state)
	case need.note && l.note == "":
		return fmt.Errorf("row %s is %s, and has no note that says why", l.row, l.state)
	case l.test == "–":
		return nil
	}
	for ref := range strings.SplitSeq(l.test, ",") {
		if err := checkTest(h, strings.TrimSpace(ref)); err != nil {
			return fmt.Errorf("row %s: %w", l.row, err)
		}
	}
	return nil
}

// allRows are the names of all rows, in the order of their groups.
func allRows() []string {
	var out []string
	for group, n := range groups {
		for i := range n {
			out = append(out, fmt.Sprintf("%s-%02d", group, i+1))
		}
	}
	for group, n := range faults {
		for i := range n {
			out = append(out, fmt.Sprintf("%s%d", group, i+1))
		}
	}
	slices.Sort(out)
	return out
}

// checkRows says what is wrong with the lines of a list of rows.
func checkRows(h *tree, lines []rowLine) []error {
	var out []error
	seen := map[string]string{}
	for _, l := range lines {
		if err := checkLine(h, l); err != nil {
			out = append(out, fmt.Errorf("%s: %w", l.at, err))
		}
		if at, twice := seen[l.row]; twice {
			out = append(out, fmt.Errorf("%s: row %s stands in %s already: put the tests into one line", l.at, l.row, at))
		}
		seen[l.row] = l.at
	}
	for _, row := range allRows() {
		if _, ok := seen[row]; !ok {
			out = append(out, fmt.Errorf("row %s is missing", row))
		}
	}
	return out
}

// A row without a line is forgotten, and one whose test was renamed or thrown away is
// not shown.
func TestRows(t *testing.T) {
	lines, err := readRows(root + "/docs/rows.md")
	if err != nil {
		t.Fatal(err)
	}
	h := theTree(t)
	for _, err := range checkRows(h, lines) {
		t.Error(err)
	}
}

func TestRowsMissing(t *testing.T) {
	h := theTree(t)
	var all []rowLine
	for _, row := range allRows() {
		all = append(all, rowLine{row: row, state: "not built", test: "–", note: "x"})
	}
	for name, c := range map[string]struct {
		lines []rowLine
		want  int
	}{"whole": {all, 0}, "missing": {all[1:], 1}, "twice": {append(slices.Clone(all), all[0]), 1}, "none": {nil, len(all)}} {
		if got := checkRows(h, c.lines); len(got) != c.want || c.want == 1 && !strings.Contains(got[0].Error(), all[0].row) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestRowsChecker(t *testing.T) {
	h := theTree(t)
	for _, c := range []struct {
		name string
		line rowLine
		good bool
	}{
		{"good", rowLine{row: "T-16", state: "shown", test: "task:TestParseID"}, true},
		{"fuzz", rowLine{row: "T-16", state: "shown", test: "task:TestParseID, task:FuzzParseID"}, true},
		{"fault", rowLine{row: "P9", state: "shown", test: "task:TestParseID"}, true},
		{"root", rowLine{row: "AR-01", state: "shown", test: "test/rules:TestLayers"}, true},
		{"partly", rowLine{row: "T-16", state: "partly", test: "task:TestParseID", note: "half of it"}, true},
		{"not-built", rowLine{row: "UI-12", state: "not built", test: "–", note: "comes with the terminal UI"}, true},
		{"decided", rowLine{row: "OF-08", state: "decided against", test: "–", note: "storage fails loud"}, true},

		{"no-such-test", rowLine{row: "T-16", state: "shown", test: "task:TestNothing"}, false},
		{"second-missing", rowLine{row: "T-16", state: "shown", test: "task:TestParseID, task:TestNothing"}, false},
		{"helper", rowLine{row: "T-16", state: "shown", test: "internal/engine/lifecycle:wantRefused"}, false},
		{"no-package", rowLine{row: "T-16", state: "shown", test: "nowhere:TestParseID"}, false},
		{"no-folder", rowLine{row: "T-16", state: "shown", test: "TestParseID"}, false},
		{"no-script", rowLine{row: "T-16", state: "shown", test: "cmd/drover/testdata/script/nothing.txtar"}, false},
		{"empty", rowLine{row: "T-16", state: "shown"}, false},
		{"no-state", rowLine{row: "T-16", test: "task:TestParseID", note: "x"}, false},
		{"odd-state", rowLine{row: "T-16", state: "done", test: "task:TestParseID", note: "x"}, false},
		{"no-test", rowLine{row: "OF-08", state: "shown", test: "–", note: "x"}, false},
		{"partly-no-test", rowLine{row: "OF-08", state: "partly", test: "–", note: "x"}, false},
		{"partly-no-note", rowLine{row: "T-16", state: "partly", test: "task:TestParseID"}, false},
		{"not-built-no-note", rowLine{row: "OF-08", state: "not built", test: "–"}, false},
		{"decided-no-note", rowLine{row: "OF-08", state: "decided against", test: "–"}, false},
		{"no-group", rowLine{row: "ZZ-01", state: "shown", test: "task:TestParseID"}, false},
		{"too-high", rowLine{row: "T-39", state: "shown", test: "task:TestParseID"}, false},
		{"zero", rowLine{row: "T-00", state: "shown", test: "task:TestParseID"}, false},
		{"one-digit", rowLine{row: "T-1", state: "shown", test: "task:TestParseID"}, false},
		{"fault-too-high", rowLine{row: "P24", state: "shown", test: "task:TestParseID"}, false},
		{"fault-zero", rowLine{row: "P0", state: "shown", test: "task:TestParseID"}, false},
		{"fault-group", rowLine{row: "AR1", state: "shown", test: "task:TestParseID"}, false},
		{"text", rowLine{row: "every row", state: "shown", test: "task:TestParseID"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := checkLine(h, c.line); (err == nil) != c.good {
				t.Errorf("got %v", err)
			}
		})
	}
}
