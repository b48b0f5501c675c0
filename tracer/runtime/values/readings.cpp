// Reads the tensors of a point on the CPU without Python: what a wrapper's code calls as `GraphCall.read`.
//
// `Point` holds what is the same in each reading of one point. `CallReader` is the function of one call; it adds rows to
// a `Rows`, which is the block of all consecutive readings of that call. A point on another device is a function that
// takes the tensors and returns a reading (cuda_readings.cpp). tracer/runtime/values/reading.py does the same in Python,
// and decides which points are read here.
#include <Python.h>

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <structmember.h>  // members of types, before Python 3.12
#include <time.h>

#include <vector>

namespace {

using Kernel = void (*)(const void* reader, const void* const* data, int threads, void* rows);  // cpu_kernel.cpp

Py_ssize_t row_bytes;
PyObject *make_rows, *group_of_rows, *is_mode_active, *number_of_threads, *s_data_ptr;

struct Point {
  PyObject_HEAD
  PyObject *group, *keeps;
  Kernel kernel;
  const void* reader;
  Py_ssize_t tensors;
  int has_big, keeps_gil;
};

struct Rows {
  PyObject_HEAD
  PyObject* groups;
  char* data;
  Py_ssize_t count, room;
};

struct CallReader {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject *points, *choose, *lost, *readings;
  Rows* rows;
  Py_ssize_t readings_then;  // length of `readings` when `rows` was added
  long long taken_ns;
};

PyTypeObject point_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject rows_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject reader_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

// Returns the clock of time.perf_counter_ns on Linux.
long long now_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int point_init(PyObject* self, PyObject* arguments, PyObject*) {
  Point* its = reinterpret_cast<Point*>(self);
  unsigned long long kernel, reader;
  if (!PyArg_ParseTuple(arguments, "OOKKnpp", &its->group, &its->keeps, &kernel, &reader, &its->tensors, &its->has_big,
                        &its->keeps_gil)) {
    its->group = its->keeps = nullptr;
    return -1;
  }
  its->kernel = reinterpret_cast<Kernel>(static_cast<uintptr_t>(kernel));
  its->reader = reinterpret_cast<const void*>(static_cast<uintptr_t>(reader));
  Py_INCREF(its->group), Py_INCREF(its->keeps);
  return 0;
}

// The group refers to its point, so that both are visible to the garbage collector.
int point_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<Point*>(self)->group);
  Py_VISIT(reinterpret_cast<Point*>(self)->keeps);
  return 0;
}

int point_clear(PyObject* self) {
  Py_CLEAR(reinterpret_cast<Point*>(self)->group);
  return 0;  // `keeps` owns the memory of `reader`
}

void point_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  Py_CLEAR(reinterpret_cast<Point*>(self)->group);
  Py_CLEAR(reinterpret_cast<Point*>(self)->keeps);
  Py_TYPE(self)->tp_free(self);
}

PyObject* rows_rows(PyObject* self, PyObject*) {
  Rows* its = reinterpret_cast<Rows*>(self);
  PyObject* data = PyBytes_FromStringAndSize(its->data, its->count * row_bytes);
  PyObject* found = data ? PyObject_CallOneArg(make_rows, data) : nullptr;
  Py_XDECREF(data);
  return found;
}

void rows_dealloc(PyObject* self) {
  free(reinterpret_cast<Rows*>(self)->data);
  Py_CLEAR(reinterpret_cast<Rows*>(self)->groups);
  Py_TYPE(self)->tp_free(self);
}

// Returns the rows to add to: new ones after a reading that Python did.
Rows* rows_of(CallReader* its) {
  if (its->rows && PyList_GET_SIZE(its->readings) == its->readings_then) return its->rows;
  Rows* rows = PyObject_New(Rows, &rows_type);
  if (!rows) return nullptr;
  rows->data = nullptr, rows->count = rows->room = 0;
  rows->groups = PyList_New(0);
  PyObject* reading = rows->groups ? PyTuple_Pack(2, group_of_rows, rows) : nullptr;
  const bool is_added = reading && PyList_Append(its->readings, reading) == 0;
  Py_XDECREF(reading);
  if (!is_added) {
    Py_DECREF(rows);
    return nullptr;
  }
  Py_XSETREF(its->rows, rows);
  its->readings_then = PyList_GET_SIZE(its->readings);
  return rows;
}

bool make_room(Rows* rows, Py_ssize_t more) {
  if (rows->count + more <= rows->room) return true;
  const Py_ssize_t room = 2 * rows->room > rows->count + more ? 2 * rows->room : rows->count + more + 32;
  char* data = static_cast<char*>(realloc(rows->data, room * row_bytes));
  if (!data) return PyErr_NoMemory(), false;
  rows->data = data, rows->room = room;
  return true;
}

bool find_addresses(PyObject* values, const void** found, Py_ssize_t tensors) {
  for (Py_ssize_t i = 0; i < tensors; i++) {
    PyObject* tensor = PySequence_Fast_GET_ITEM(values, i);
    PyObject* address = PyObject_VectorcallMethod(s_data_ptr, &tensor, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
    if (!address) return false;
    found[i] = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    if (!found[i] && PyErr_Occurred()) return false;
  }
  return true;
}

bool read(CallReader* its, Point* point, PyObject* values) {
  const void* few[16];
  std::vector<const void*> many;
  const void** addresses = few;
  if (!PyTuple_Check(values) && !PyList_Check(values)) return PyErr_SetString(PyExc_TypeError, "no tensors"), false;
  if (PySequence_Fast_GET_SIZE(values) != point->tensors)
    return PyErr_Format(PyExc_ValueError, "not %zd tensors", point->tensors), false;
  if (point->tensors > 16) many.resize(point->tensors), addresses = many.data();
  int threads = 1;
  if (point->has_big) {
    PyObject* number = PyObject_CallNoArgs(number_of_threads);
    if (!number) return false;
    threads = static_cast<int>(PyLong_AsLong(number));
    Py_DECREF(number);
    if (threads == -1 && PyErr_Occurred()) return false;
  }
  Rows* rows = rows_of(its);
  if (!rows || !make_room(rows, point->tensors) || !find_addresses(values, addresses, point->tensors)) return false;
  char* out = rows->data + rows->count * row_bytes;
  if (point->keeps_gil) {
    point->kernel(point->reader, addresses, threads, out);
  } else {
    Py_BEGIN_ALLOW_THREADS
    point->kernel(point->reader, addresses, threads, out);
    Py_END_ALLOW_THREADS
  }
  if (PyList_Append(rows->groups, point->group) < 0) return false;
  rows->count += point->tensors;
  return true;
}

// Adds what a point that is not on the CPU returns: its group and its block.
bool read_elsewhere(CallReader* its, PyObject* point, PyObject* values) {
  PyObject* reading = PyObject_CallOneArg(point, values);
  const bool is_done = reading && PyList_Append(its->readings, reading) == 0;
  Py_XDECREF(reading);
  return is_done;
}

// Calls `lost` with the place and the error that is set, unless it is one that must reach the program.
bool pass_on(CallReader* its, PyObject* place) {
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
  PyObject *type, *error, *trace;
  PyErr_Fetch(&type, &error, &trace);
  PyErr_NormalizeException(&type, &error, &trace);
  PyObject* done = PyObject_CallFunctionObjArgs(its->lost, place, error, nullptr);
  Py_XDECREF(type), Py_XDECREF(error), Py_XDECREF(trace);
  Py_XDECREF(done);
  return done != nullptr;
}

// Reads the tensors at a point of the wrapper, with arguments (call, point, values).
PyObject* read_point(PyObject* self, PyObject* const* arguments, size_t flags, PyObject*) {
  CallReader* its = reinterpret_cast<CallReader*>(self);
  if (PyVectorcall_NARGS(flags) != 3) return PyErr_Format(PyExc_TypeError, "three arguments are needed");
  const Py_ssize_t place = PyLong_AsSsize_t(arguments[1]);
  if (place < 0 || place >= PyList_GET_SIZE(its->points)) return PyErr_Format(PyExc_IndexError, "no such point");
  PyObject* point = PyList_GET_ITEM(its->points, place);
  Py_INCREF(point);
  PyObject* mode = PyObject_CallNoArgs(is_mode_active);
  const bool is_plain = mode == Py_False;
  Py_XDECREF(mode);
  if (!is_plain || point == Py_None) {
    Py_DECREF(point);
    point = mode ? PyObject_Vectorcall(its->choose, arguments, 3, nullptr) : nullptr;
  }
  const long long started = now_ns();
  bool is_done = point != nullptr;
  if (is_done && Py_TYPE(point) == &point_type)
    is_done = read(its, reinterpret_cast<Point*>(point), arguments[2]);
  else if (is_done && point != Py_None)
    is_done = read_elsewhere(its, point, arguments[2]);
  Py_XDECREF(point);
  if (!is_done && !pass_on(its, arguments[1])) return nullptr;
  its->taken_ns += now_ns() - started;
  Py_RETURN_NONE;
}

int reader_init(PyObject* self, PyObject* arguments, PyObject*) {
  CallReader* its = reinterpret_cast<CallReader*>(self);
  PyObject *points, *choose, *lost, *readings;
  if (!PyArg_ParseTuple(arguments, "O!OOO!", &PyList_Type, &points, &choose, &lost, &PyList_Type, &readings)) return -1;
  its->vectorcall = read_point;
  Py_INCREF(points), Py_INCREF(choose), Py_INCREF(lost), Py_INCREF(readings);
  Py_XSETREF(its->points, points); Py_XSETREF(its->choose, choose);
  Py_XSETREF(its->lost, lost); Py_XSETREF(its->readings, readings);
  return 0;
}

int reader_traverse(PyObject* self, visitproc visit, void* arg) {
  CallReader* its = reinterpret_cast<CallReader*>(self);
  Py_VISIT(its->points); Py_VISIT(its->choose); Py_VISIT(its->lost); Py_VISIT(its->readings);
  Py_VISIT(its->rows);
  return 0;
}

int reader_clear(PyObject* self) {
  CallReader* its = reinterpret_cast<CallReader*>(self);
  Py_CLEAR(its->points); Py_CLEAR(its->choose); Py_CLEAR(its->lost); Py_CLEAR(its->readings);
  Py_CLEAR(its->rows);
  return 0;
}

void reader_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  reader_clear(self);
  Py_TYPE(self)->tp_free(self);
}

PyObject* set_up(PyObject*, PyObject* arguments) {
  if (!PyArg_ParseTuple(arguments, "nOOOO", &row_bytes, &make_rows, &group_of_rows, &is_mode_active,
                        &number_of_threads))
    return nullptr;
  for (PyObject* kept : {make_rows, group_of_rows, is_mode_active, number_of_threads}) Py_INCREF(kept);
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"set_up", set_up, METH_VARARGS,
     "(bytes of a row, make rows of bytes, group of rows, is a mode active, number of threads)"},
    {},
};
PyMethodDef rows_methods[] = {
    {"rows", rows_rows, METH_NOARGS, "Return the rows as an array."},
    {"wait", rows_rows, METH_NOARGS, "Return the rows as an array."},
    {},
};
PyMemberDef rows_members[] = {
    {"groups", T_OBJECT, offsetof(Rows, groups), READONLY, "The readings whose rows these are, in order."}, {}};
PyMemberDef reader_members[] = {
    {"taken_ns", T_LONGLONG, offsetof(CallReader, taken_ns), READONLY, "Time that the readings took, in ns."}, {}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "stepscope_readings", nullptr, -1, functions,
                      nullptr, nullptr, nullptr, nullptr};

void define_types() {
  point_type.tp_name = "stepscope_readings.Point";
  point_type.tp_basicsize = sizeof(Point);
  point_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  point_type.tp_new = PyType_GenericNew, point_type.tp_init = point_init, point_type.tp_dealloc = point_dealloc;
  point_type.tp_traverse = point_traverse, point_type.tp_clear = point_clear;
  rows_type.tp_name = "stepscope_readings.Rows";
  rows_type.tp_basicsize = sizeof(Rows);
  rows_type.tp_flags = Py_TPFLAGS_DEFAULT;
  rows_type.tp_dealloc = rows_dealloc;
  rows_type.tp_methods = rows_methods, rows_type.tp_members = rows_members;
  reader_type.tp_name = "stepscope_readings.CallReader";
  reader_type.tp_basicsize = sizeof(CallReader);
  reader_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL;
  reader_type.tp_new = PyType_GenericNew, reader_type.tp_init = reader_init, reader_type.tp_dealloc = reader_dealloc;
  reader_type.tp_traverse = reader_traverse, reader_type.tp_clear = reader_clear;
  reader_type.tp_call = PyVectorcall_Call, reader_type.tp_vectorcall_offset = offsetof(CallReader, vectorcall);
  reader_type.tp_members = reader_members;
}

}  // namespace

PyMODINIT_FUNC PyInit_stepscope_readings() {
  define_types();
  for (PyTypeObject* type : {&point_type, &rows_type, &reader_type})
    if (PyType_Ready(type) < 0) return nullptr;
  if (!(s_data_ptr = PyUnicode_InternFromString("data_ptr"))) return nullptr;
  PyObject* made = PyModule_Create(&module);
  if (made && (PyModule_AddObjectRef(made, "Point", reinterpret_cast<PyObject*>(&point_type)) < 0 ||
               PyModule_AddObjectRef(made, "CallReader", reinterpret_cast<PyObject*>(&reader_type)) < 0))
    Py_CLEAR(made);
  return made;
}
