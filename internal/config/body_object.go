package config

import (
	"cmp"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// bodyObject turns a body into the object that the same configuration is in
// JSON: blocks of one type become an object, or a list when there are
// several. Consul's files are written in both ways.
func bodyObject(b *hclsyntax.Body) *hclsyntax.ObjectConsExpr {
	obj := &hclsyntax.ObjectConsExpr{SrcRange: b.Range(), OpenRange: b.Range()}
	for name, a := range b.Attributes {
		obj.Items = append(obj.Items, hclsyntax.ObjectConsItem{KeyExpr: literal(name, a.NameRange), ValueExpr: a.Expr})
	}
	lists := map[string]*hclsyntax.TupleConsExpr{}
	for _, blk := range b.Blocks {
		if lists[blk.Type] == nil {
			l := &hclsyntax.TupleConsExpr{SrcRange: blk.DefRange(), OpenRange: blk.OpenBraceRange}
			lists[blk.Type] = l
			obj.Items = append(obj.Items, hclsyntax.ObjectConsItem{KeyExpr: literal(blk.Type, blk.TypeRange), ValueExpr: l})
		}
		lists[blk.Type].Exprs = append(lists[blk.Type].Exprs, blockObject(blk))
	}
	for i, item := range obj.Items {
		if l, ok := item.ValueExpr.(*hclsyntax.TupleConsExpr); ok && len(l.Exprs) == 1 && lists[key(item)] == l {
			obj.Items[i].ValueExpr = l.Exprs[0]
		}
	}
	slices.SortFunc(obj.Items, func(x, y hclsyntax.ObjectConsItem) int {
		return cmp.Compare(x.KeyExpr.Range().Start.Byte, y.KeyExpr.Range().Start.Byte)
	})
	return obj
}

// blockObject is one block; the label of a service is its name, as in jorc's
// own configuration, other labels are keys.
func blockObject(b *hclsyntax.Block) hclsyntax.Expression {
	obj := bodyObject(b.Body)
	if b.Type == "service" && len(b.Labels) == 1 {
		obj.Items = append(obj.Items, hclsyntax.ObjectConsItem{
			KeyExpr: literal("name", b.LabelRanges[0]), ValueExpr: literal(b.Labels[0], b.LabelRanges[0]),
		})
		return obj
	}
	for i := len(b.Labels) - 1; i >= 0; i-- {
		obj = &hclsyntax.ObjectConsExpr{
			SrcRange: b.Body.Range(), OpenRange: b.OpenBraceRange,
			Items: []hclsyntax.ObjectConsItem{{KeyExpr: literal(b.Labels[i], b.LabelRanges[i]), ValueExpr: obj}},
		}
	}
	return obj
}

func literal(s string, rng hcl.Range) *hclsyntax.LiteralValueExpr {
	return &hclsyntax.LiteralValueExpr{Val: cty.StringVal(s), SrcRange: rng}
}

func key(item hclsyntax.ObjectConsItem) string {
	return item.KeyExpr.(*hclsyntax.LiteralValueExpr).Val.AsString()
}
