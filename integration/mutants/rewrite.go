package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/token"
	"go/types"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/ast/astutil"
)

// The kinds of mutants.
const (
	negated = "negated" // a condition, or an operand of && or ||
	dropped = "dropped" // a call whose results are not used, also a deferred one
	swapped = "swapped" // the bodies of two neighbouring cases
	bounded = "bound"   // < in place of <=, and the like
)

// source is a file of a package, and what is needed to rewrite the file.
type source struct {
	pkg  string // such as bridge/conn
	name string // without its folder
	text []byte
	fset *token.FileSet
	file *ast.File
	info *types.Info
}

// rewriter makes the mutants of one file.
type rewriter struct {
	source
	first    int // id of the first mutant
	function string
	found    []mutant
	marked   map[ast.Expr]bool   // conditions
	texts    map[ast.Node]string // of the file as it is: of statements, expressions, and the bodies of cases
}

// rewrite puts all mutants of a file into the file, with ids from first. The function mutated chooses one of them when
// the program runs. rewrite changes s.file.
func rewrite(s source, first int) ([]byte, []mutant, error) {
	r := &rewriter{source: s, first: first, marked: map[ast.Expr]bool{}, texts: map[ast.Node]string{}}
	for _, d := range s.file.Decls {
		r.function = nameOf(d)
		astutil.Apply(d, r.enter, r.leave)
	}
	if len(r.found) == 0 {
		return nil, nil, nil
	}
	s.file.Comments = nil
	var b bytes.Buffer
	if err := format.Node(&b, s.fset, s.file); err != nil {
		return nil, nil, fmt.Errorf("print %s/%s: %w", s.pkg, s.name, err)
	}
	return b.Bytes(), r.found, nil
}

// nameOf returns the name of a function, such as (*Cache).Call, or of the first variable of a declaration.
func nameOf(d ast.Decl) string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return d.Name.Name
		}
		of := types.ExprString(d.Recv.List[0].Type)
		if strings.HasPrefix(of, "*") {
			of = "(" + of + ")"
		}
		return of + "." + d.Name.Name
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok {
				return "var " + v.Names[0].Name
			}
		}
	}
	return ""
}

// enter marks the conditions of a node before they are visited, and keeps texts.
func (r *rewriter) enter(c *astutil.Cursor) bool {
	switch n := c.Node().(type) {
	case *ast.ExprStmt, *ast.DeferStmt:
		r.texts[n] = r.between(n.Pos(), n.End())
	case *ast.CaseClause:
		r.texts[n] = r.between(n.Colon+1, n.End())
	case *ast.CommClause:
		r.texts[n] = r.between(n.Colon+1, n.End())
	case *ast.IfStmt:
		r.mark(n.Cond)
	case *ast.ForStmt:
		r.mark(n.Cond)
	case *ast.BinaryExpr:
		r.texts[n] = r.between(n.Pos(), n.End())
		if n.Op == token.LAND || n.Op == token.LOR {
			r.mark(n.X, n.Y)
		}
	case *ast.ReturnStmt:
		r.mark(n.Results...)
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, s := range n.Body.List {
				r.mark(s.(*ast.CaseClause).List...)
			}
		}
	}
	return true
}

// mark marks the expressions that are conditions: of type bool, and not constant. Of a && b and a || b only a and b
// are. Operands of another bool type would need a conversion.
func (r *rewriter) mark(exprs ...ast.Expr) {
	for _, x := range exprs {
		x = ast.Unparen(x)
		if b, ok := x.(*ast.BinaryExpr); ok && (b.Op == token.LAND || b.Op == token.LOR) {
			continue
		}
		if t, ok := r.info.Types[x]; x != nil && ok && t.Value == nil && (t.Type == types.Typ[types.Bool] || t.Type == types.Typ[types.UntypedBool]) {
			r.marked[x] = true
			r.texts[x] = r.between(x.Pos(), x.End())
		}
	}
}

// leave puts the mutants of a node in its place, after those of its children.
func (r *rewriter) leave(c *astutil.Cursor) bool {
	switch n := c.Node().(type) {
	case *ast.ExprStmt:
		if call, ok := n.X.(*ast.CallExpr); ok && c.Index() >= 0 && droppable(call) {
			c.Replace(r.drop(n))
		}
	case *ast.DeferStmt:
		if c.Index() >= 0 && droppable(n.Call) {
			c.Replace(r.drop(n))
		}
	case *ast.SwitchStmt:
		r.swap(n.Body)
	case *ast.SelectStmt:
		r.swap(n.Body)
	case *ast.TypeSwitchStmt:
		if _, binds := n.Assign.(*ast.AssignStmt); !binds {
			r.swap(n.Body)
		}
	case ast.Expr:
		if changed := r.condition(n); changed != n {
			c.Replace(changed)
		}
	}
	return true
}

// condition returns an expression with its mutants: its bound moved, and all of it negated.
func (r *rewriter) condition(x ast.Expr) ast.Expr {
	changed := x
	if b, ok := x.(*ast.BinaryExpr); ok && r.hasBound(b) {
		equal := &ast.BinaryExpr{X: b.X, Op: token.EQL, Y: b.Y}
		chosen := &ast.BinaryExpr{X: r.add(bounded, r.texts[x]), Op: token.LAND, Y: equal}
		if b.Op == token.LSS || b.Op == token.GTR {
			changed = &ast.ParenExpr{X: &ast.BinaryExpr{X: b, Op: token.LOR, Y: chosen}}
		} else {
			changed = &ast.ParenExpr{X: &ast.BinaryExpr{X: b, Op: token.LAND, Y: not(&ast.ParenExpr{X: chosen})}}
		}
	}
	if r.marked[x] {
		changed = &ast.ParenExpr{X: &ast.BinaryExpr{X: r.add(negated, r.texts[x]), Op: token.NEQ, Y: &ast.ParenExpr{X: changed}}}
	}
	return changed
}

// hasBound reports whether b compares numbers that can be computed twice.
func (r *rewriter) hasBound(b *ast.BinaryExpr) bool {
	if b.Op != token.LSS && b.Op != token.LEQ && b.Op != token.GTR && b.Op != token.GEQ {
		return false
	}
	t := r.info.Types[b]
	return t.Value == nil && r.pure(b.X) && r.pure(b.Y)
}

// pure reports whether computing x calls nothing but len, cap and conversions.
func (r *rewriter) pure(x ast.Expr) bool {
	pure := true
	ast.Inspect(x, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			f := r.info.Types[n.Fun]
			pure = pure && (f.IsType() || f.IsBuiltin())
		case *ast.UnaryExpr:
			pure = pure && n.Op != token.ARROW
		case *ast.FuncLit:
			pure = false
		}
		return pure
	})
	return pure
}

// droppable reports whether a program without a call is compiled, and worth a test: without panic a return may be
// missing, and without the call of a lock every test that comes by fails, or waits for ever.
func droppable(call *ast.CallExpr) bool {
	name := ""
	switch f := call.Fun.(type) {
	case *ast.Ident:
		name = f.Name
	case *ast.SelectorExpr:
		name = f.Sel.Name
	}
	return !slices.Contains([]string{"panic", "Lock", "Unlock", "RLock", "RUnlock"}, name)
}

// drop returns the statement s that is left out in one mutant.
func (r *rewriter) drop(s ast.Stmt) ast.Stmt {
	return &ast.IfStmt{Cond: not(r.add(dropped, r.texts[s])), Body: &ast.BlockStmt{List: []ast.Stmt{s}}}
}

// swap exchanges the bodies of cases that follow each other, a mutant for each two.
func (r *rewriter) swap(body *ast.BlockStmt) {
	bodies := make([]*[]ast.Stmt, len(body.List))
	for i, s := range body.List {
		bodies[i] = exchangeable(s)
	}
	before := make([][]ast.Stmt, len(bodies))
	for i, b := range bodies {
		if b != nil {
			before[i] = *b
		}
	}
	for i := 1; i < len(bodies); i++ {
		if bodies[i-1] == nil || bodies[i] == nil || r.texts[body.List[i-1]] == r.texts[body.List[i]] {
			continue
		}
		chosen := r.add(swapped, r.headOf(body.List[i-1])+" "+r.headOf(body.List[i]))
		*bodies[i-1] = choose(chosen, before[i], *bodies[i-1])
		*bodies[i] = choose(chosen, before[i-1], *bodies[i])
	}
}

// exchangeable returns the body of a case, or nil: a fallthrough must stay where it is, a label must not be there
// twice, and what a case declares another does not have.
func exchangeable(s ast.Stmt) *[]ast.Stmt {
	var body *[]ast.Stmt
	switch s := s.(type) {
	case *ast.CaseClause:
		body = &s.Body
	case *ast.CommClause:
		body = &s.Body
		if a, ok := s.Comm.(*ast.AssignStmt); ok && a.Tok == token.DEFINE {
			return nil
		}
	}
	for _, s := range *body {
		fixed := false
		ast.Inspect(s, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.LabeledStmt:
				fixed = true
			case *ast.BranchStmt:
				fixed = fixed || n.Tok == token.FALLTHROUGH
			}
			return !fixed
		})
		if fixed {
			return nil
		}
	}
	return body
}

func choose(chosen ast.Expr, then, otherwise []ast.Stmt) []ast.Stmt {
	return []ast.Stmt{&ast.IfStmt{Cond: chosen, Body: &ast.BlockStmt{List: then}, Else: &ast.BlockStmt{List: otherwise}}}
}

func not(x ast.Expr) ast.Expr { return &ast.UnaryExpr{Op: token.NOT, X: x} }

// add adds a mutant, and returns the call that tells whether the mutant is chosen.
func (r *rewriter) add(kind, text string) ast.Expr {
	m := mutant{Package: r.pkg, File: r.name, Function: r.function, Kind: kind, Text: text}
	for _, other := range r.found {
		if other.Function == m.Function && other.Kind == m.Kind && other.Text == m.Text {
			m.Ordinal++
		}
	}
	r.found = append(r.found, m)
	id := strconv.Itoa(r.first + len(r.found) - 1)
	return &ast.CallExpr{Fun: ast.NewIdent("mutated"), Args: []ast.Expr{&ast.BasicLit{Kind: token.INT, Value: id}}}
}

// headOf returns what stands before the body of a case.
func (r *rewriter) headOf(s ast.Stmt) string {
	end := s.Pos()
	switch s := s.(type) {
	case *ast.CaseClause:
		end = s.Colon
	case *ast.CommClause:
		end = s.Colon
	}
	return r.between(s.Pos(), end+1)
}

// between returns a part of the file on one line, its first 120 bytes.
func (r *rewriter) between(from, to token.Pos) string {
	f := r.fset.File(from)
	text := strings.Join(strings.Fields(string(r.text[f.Offset(from):f.Offset(to)])), " ")
	if len(text) > 120 {
		text = strings.ToValidUTF8(text[:120], "") + "…"
	}
	return text
}

// chooser is a file that each mutated package gets. The first of its arguments is the name of the package, the second
// the number of all mutants.
const chooser = `package %s

import (
	"os"
	"strconv"
	"sync/atomic"
)

var (
	mutatedID, _ = strconv.Atoi(os.Getenv("MUTANT"))
	mutatedTrace = func() *os.File {
		name := os.Getenv("MUTANT_TRACE")
		if name == "" {
			return nil
		}
		f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		return f
	}()
	mutatedSeen [%d]atomic.Bool
)

func mutated(id int) bool {
	if mutatedTrace != nil && !mutatedSeen[id].Swap(true) {
		mutatedTrace.WriteString(strconv.Itoa(id) + "\n")
	}
	return id == mutatedID
}
`
