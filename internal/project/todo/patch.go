package todo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

func (p Patch) edges() bool { return p.BlockedBy != nil || len(p.AddBlockedBy)+len(p.AddBlocks) > 0 }

// patched is the rule of an update. It returns the change, and the other to-dos
// that change with it. For edges the list must be whole.
func (l List) patched(id ID, p Patch) (Change, []Item, error) {
	before, _ := l.Get(id)
	it := before.clone()
	set(&it.Subject, p.Subject)
	set(&it.Description, p.Description)
	set(&it.ActiveForm, p.ActiveForm)
	set(&it.Status, p.Status)
	set(&it.Owner, p.Owner)
	if p.Status != nil && it.Status == InProgress && it.Owner == "" {
		it.Owner = p.By
	}
	if err := it.merge(p.Metadata); err != nil {
		return Change{}, nil, err
	}
	var others []Item
	if p.edges() {
		var err error
		if others, err = l.connect(&it, p); err != nil {
			return Change{}, nil, err
		}
	}
	c := Change{Before: before, After: it, Fields: differences(before, it)}
	if len(others) > 0 {
		c.Fields = append(c.Fields, "blocks")
	}
	return c, others, it.check()
}

func set[T any](at, to *T) {
	if to != nil {
		*at = *to
	}
}

func differences(a, b Item) []string {
	var out []string
	for _, f := range []struct {
		name string
		same bool
	}{
		{"subject", a.Subject == b.Subject}, {"description", a.Description == b.Description},
		{"active_form", a.ActiveForm == b.ActiveForm},
		{"status", a.Status == b.Status}, {"owner", a.Owner == b.Owner},
		{"blocked_by", slices.Equal(a.BlockedBy, b.BlockedBy)},
		{"metadata", maps.EqualFunc(a.Metadata, b.Metadata, func(x, y json.RawMessage) bool { return bytes.Equal(x, y) })},
	} {
		if !f.same {
			out = append(out, f.name)
		}
	}
	return out
}

// connect changes the to-dos that it waits for, and returns the others that are to
// wait for it.
func (l List) connect(it *Item, p Patch) ([]Item, error) {
	if p.BlockedBy != nil {
		it.BlockedBy = nil
		p.AddBlockedBy = slices.Concat(*p.BlockedBy, p.AddBlockedBy)
	}
	for _, id := range slices.Concat(p.AddBlockedBy, p.AddBlocks) {
		if err := l.there(id); err != nil {
			return nil, err
		}
	}
	it.BlockedBy = sorted(slices.Concat(it.BlockedBy, p.AddBlockedBy))
	var others []Item
	for _, id := range sorted(p.AddBlocks) {
		other, _ := l.Get(id)
		if id == it.ID {
			return nil, &Circle{[]ID{id}}
		}
		if slices.Contains(other.BlockedBy, it.ID) {
			continue
		}
		other = other.clone()
		other.BlockedBy = sorted(append(other.BlockedBy, it.ID))
		if err := other.check(); err != nil {
			return nil, fmt.Errorf("to-do %s: %w", id, err)
		}
		others = append(others, other)
	}
	after := make(map[ID][]ID, len(l.Items))
	for _, x := range slices.Concat(l.Items, others, []Item{*it}) {
		after[x.ID] = x.BlockedBy
	}
	if circle := findCircle(after); circle != nil {
		return nil, &Circle{circle}
	}
	return others, nil
}

func (l List) there(id ID) error {
	if _, ok := l.Get(id); ok {
		return nil
	}
	for _, p := range l.Problems {
		if p.ID == id {
			return fmt.Errorf("to-do %s cannot be read: %s", id, p.Why)
		}
	}
	return fmt.Errorf("to-do %s: %w", id, ErrNotFound)
}

// merge puts metadata over the present metadata.
func (it *Item) merge(more map[string]json.RawMessage) error {
	for key, value := range more {
		var plain bytes.Buffer
		if err := json.Compact(&plain, value); err != nil {
			return fmt.Errorf("metadata %.40q is not JSON", key)
		}
		it.Metadata[key] = plain.Bytes()
		if plain.String() == "null" {
			delete(it.Metadata, key)
		}
	}
	return nil
}

// sorted is a copy without repetitions, never nil.
func sorted(ids []ID) []ID {
	out := append([]ID{}, ids...)
	slices.Sort(out)
	return slices.Compact(out)
}

// Preview tells what an update of the list, as it is here, would do.
func (l List) Preview(id ID, p Patch) (Change, error) {
	if err := l.there(id); err != nil {
		return Change{}, err
	}
	c, _, err := l.patched(id, p)
	return c, err
}
