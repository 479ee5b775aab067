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
	at              string
	row, test, note string
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
		if len(cells) != 3 {
			return nil, fmt.Errorf("%s:%d: %d columns, want 3", file, n, len(cells))
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if strings.Trim(cells[0], "-:") == "" || cells[0] == "row" {
			head = true
			continue
		}
		out = append(out, rowLine{fmt.Sprintf("%s:%d", file, n), cells[0], cells[1], cells[2]})
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
func checkTest(h *house, ref string) error {
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

func checkLine(h *house, l rowLine) error {
	if err := checkRow(l.row); err != nil {
		return err
	}
	if l.test == "–" {
		if l.note == "" {
			return fmt.Errorf("row %s has neither a test nor a note", l.row)
		}
		return nil
	}
	for ref := range strings.SplitSeq(l.test, ",") {
		if err := checkTest(h, strings.TrimSpace(ref)); err != nil {
			return fmt.Errorf("row %s: %w", l.row, err)
		}
	}
	return nil
}

// A promise whose test was renamed or thrown away is no promise.
func TestRows(t *testing.T) {
	h := theHouse(t)
	lines, err := readRows(root + "/docs/rows.md")
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) == 0 {
		t.Fatal("docs/rows.md has no rows")
	}
	seen := map[string]string{}
	for _, l := range lines {
		if err := checkLine(h, l); err != nil {
			t.Errorf("%s: %v", l.at, err)
		}
		if at, twice := seen[l.row]; twice {
			t.Errorf("%s: row %s stands in %s already: put the tests into one line", l.at, l.row, at)
		}
		seen[l.row] = l.at
	}
}

func TestRowsChecker(t *testing.T) {
	h := theHouse(t)
	for _, c := range []struct {
		name string
		line rowLine
		good bool
	}{
		{"good", rowLine{row: "T-16", test: "task:TestApplyTable"}, true},
		{"fuzz", rowLine{row: "T-16", test: "task:TestApplyTable, task:FuzzApply"}, true},
		{"fault", rowLine{row: "P9", test: "task:TestApplyTable"}, true},
		{"root", rowLine{row: "AR-01", test: "test/rules:TestLayers"}, true},
		{"not-ported", rowLine{row: "OF-08", test: "–", note: "not ported"}, true},

		{"no-such-test", rowLine{row: "T-16", test: "task:TestNothing"}, false},
		{"second-missing", rowLine{row: "T-16", test: "task:TestApplyTable, task:TestNothing"}, false},
		{"helper", rowLine{row: "T-16", test: "task:wantRefused"}, false},
		{"no-package", rowLine{row: "T-16", test: "nowhere:TestApplyTable"}, false},
		{"no-folder", rowLine{row: "T-16", test: "TestApplyTable"}, false},
		{"no-script", rowLine{row: "T-16", test: "cmd/drover/testdata/script/nothing.txtar"}, false},
		{"empty", rowLine{row: "T-16"}, false},
		{"no-note", rowLine{row: "OF-08", test: "–"}, false},
		{"no-group", rowLine{row: "ZZ-01", test: "task:TestApplyTable"}, false},
		{"too-high", rowLine{row: "T-39", test: "task:TestApplyTable"}, false},
		{"zero", rowLine{row: "T-00", test: "task:TestApplyTable"}, false},
		{"one-digit", rowLine{row: "T-1", test: "task:TestApplyTable"}, false},
		{"fault-too-high", rowLine{row: "P24", test: "task:TestApplyTable"}, false},
		{"fault-zero", rowLine{row: "P0", test: "task:TestApplyTable"}, false},
		{"fault-group", rowLine{row: "AR1", test: "task:TestApplyTable"}, false},
		{"text", rowLine{row: "every row", test: "task:TestApplyTable"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := checkLine(h, c.line); (err == nil) != c.good {
				t.Errorf("got %v", err)
			}
		})
	}
}
