package frontmatter

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// strict reads front matter as YAML. The error says why it is not YAML.
func strict(head string, known []string) ([]Field, []Warning, error) {
	// A line before it makes the reader count as the file does.
	d := yaml.NewDecoder(strings.NewReader("\n" + head))
	var doc, next yaml.Node
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, err
	}
	if err := d.Decode(&next); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("it ends in the middle")
	}
	if len(doc.Content) == 0 || doc.Content[0].ShortTag() == "!!null" {
		return nil, nil, nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, nil, fmt.Errorf("line %d: it is not a list of keys with values", root.Line)
	}
	c := &converter{}
	var out []Field
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		name, err := keyOf(key)
		if err != nil {
			return nil, nil, err
		}
		if slices.ContainsFunc(out, func(f Field) bool { return f.Key == name }) {
			if !slices.Contains(known, name) {
				return nil, nil, fmt.Errorf("line %d: key %.40q comes twice", key.Line, name)
			}
			c.warn(key, "key %.40q comes twice; the first counts", name)
			continue
		}
		v, err := c.value(value, 1)
		if err != nil {
			return nil, nil, err
		}
		f := Field{Key: name, Line: key.Line, Value: v}
		if value.Kind == yaml.ScalarNode && v != nil {
			f.text = value.Value
		} else if value.Kind == yaml.AliasNode {
			f.text = "*" + value.Value
		}
		out = append(out, f)
	}
	return out, c.warnings, nil
}

func keyOf(n *yaml.Node) (string, error) {
	if n.Kind != yaml.ScalarNode {
		return "", fmt.Errorf("line %d: a key is not a word", n.Line)
	}
	return n.Value, nil
}

// converter makes plain values of nodes. It follows no alias: the work is
// bounded by the size of the file.
type converter struct {
	warnings []Warning
	count    int
}

func (c *converter) warn(n *yaml.Node, format string, args ...any) {
	c.warnings = append(c.warnings, Warning{n.Line, fmt.Sprintf(format, args...)})
}

func (c *converter) value(n *yaml.Node, depth int) (any, error) {
	if c.count++; depth > MaxNesting || c.count > maxValues {
		return nil, fmt.Errorf("line %d: more than %d levels or %d values: %w", n.Line, MaxNesting, maxValues, ErrTooLarge)
	}
	switch n.Kind {
	case yaml.AliasNode:
		c.warn(n, "the alias *%.40s is not expanded", n.Value)
		return "*" + n.Value, nil
	case yaml.SequenceNode:
		return c.list(n, depth)
	case yaml.MappingNode:
		return c.object(n, depth)
	}
	return scalar(n), nil
}

func (c *converter) list(n *yaml.Node, depth int) (any, error) {
	out := make([]any, 0, len(n.Content))
	for _, item := range n.Content {
		v, err := c.value(item, depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func (c *converter) object(n *yaml.Node, depth int) (any, error) {
	out := make(map[string]any, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, err := keyOf(n.Content[i])
		if err != nil {
			return nil, err
		}
		if _, twice := out[key]; twice {
			c.warn(n.Content[i], "key %.40q comes twice; the first counts", key)
			continue
		}
		if out[key], err = c.value(n.Content[i+1], depth+1); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// scalar gives numbers and truth values their types, and leaves all else text.
func scalar(n *yaml.Node) any {
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		var b bool
		if n.Decode(&b) == nil {
			return b
		}
	case "!!int":
		var i int64
		if n.Decode(&i) == nil {
			return i
		}
	case "!!float":
		var f float64
		if n.Decode(&f) == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return f
		}
	}
	return n.Value
}
