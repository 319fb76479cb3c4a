// Where tensors lie and how, for a list of them at once; places.py says the same in Python, one by one.
#include <Python.h>

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <vector>

namespace {

using Numbers = std::vector<int64_t>;

// While there is one, nobody is asked about attributes of tensors: not default devices, not subclasses.
class Unasked {
 public:
  Unasked() { at::impl::PythonTorchFunctionTLS::set_disabled_state(State::ALL_DISABLED); }
  ~Unasked() { at::impl::PythonTorchFunctionTLS::set_disabled_state(before_); }

 private:
  using State = at::impl::TorchFunctionDisabledState;
  const State before_ = at::impl::PythonTorchFunctionTLS::get_disabled_state();
};

PyTypeObject* find_class() {
  PyObject* const torch = PyImport_ImportModule("torch");
  PyObject* const found = torch == nullptr ? nullptr : PyObject_GetAttrString(torch, "Tensor");
  Py_XDECREF(torch);
  return reinterpret_cast<PyTypeObject*>(found);
}

// The tensor behind an object of Python; none if it is no tensor, though it may have a _cdata.
c10::TensorImpl* tensor_of(PyObject* object) {
  static PyTypeObject* const type = find_class();
  static PyObject* const name = PyUnicode_InternFromString("_cdata");
  if (type == nullptr || name == nullptr || !PyObject_TypeCheck(object, type)) {
    return nullptr;
  }
  PyObject* const address = PyObject_GetAttr(object, name);
  if (address == nullptr) {
    return nullptr;
  }
  auto* const tensor = static_cast<c10::TensorImpl*>(PyLong_AsVoidPtr(address));
  Py_DECREF(address);
  return tensor;
}

// Throws if the tensor has no strides, or no memory of its own.
void note(c10::TensorImpl& tensor, Numbers& forms, Numbers& addresses) {
  const auto sizes = tensor.sizes(), strides = tensor.strides();
  const auto device = tensor.device();
  const auto end = forms.size();
  forms.resize(end + 4 + 2 * sizes.size());
  int64_t* form = forms.data() + end;
  // Keys tell dense memory from all else: sparse, lazily negated, classes that hold other tensors.
  *form++ = static_cast<int64_t>(tensor.key_set().raw_repr());
  *form++ = static_cast<int64_t>(c10::typeMetaToScalarType(tensor.dtype()));
  *form++ = static_cast<int64_t>(device.type()) * 256 + device.index();
  *form++ = static_cast<int64_t>(sizes.size());
  form = std::copy(sizes.begin(), sizes.end(), form);
  std::copy(strides.begin(), strides.end(), form);
  // Memory that was freed has an address too, if the tensor does not begin with it.
  const bool is_there = tensor.numel() == 0 || tensor.storage().nbytes() > 0;
  addresses.push_back(is_there ? reinterpret_cast<int64_t>(tensor.mutable_data()) : 0);
}

PyObject* bytes_of(const Numbers& numbers) {
  const auto size = numbers.size() * sizeof(int64_t);
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(numbers.data()), size);
}

// Notes all tensors, and the gradients of the first; whether all were there to be seen.
bool note_all(PyObject* tensors, Py_ssize_t with_gradient, Numbers (&seen)[4]) {
  const Unasked unasked;
  for (Py_ssize_t place = 0; place < PyList_GET_SIZE(tensors); ++place) {
    auto* const tensor = tensor_of(PyList_GET_ITEM(tensors, place));
    if (tensor == nullptr) {
      return false;
    }
    note(*tensor, seen[0], seen[1]);
    if (place < with_gradient) {
      note(*tensor->grad().unsafeGetTensorImpl(), seen[2], seen[3]);  // throws if it is undefined
    }
  }
  return true;
}

}  // namespace

// Forms and addresses of a list of tensors, and of the gradients of the first, as four strings of bytes.
// None, if one of all these is missing, is no tensor, or does not lie in memory.
extern "C" PyObject* look(PyObject* tensors, Py_ssize_t with_gradient) {
  if (!PyList_Check(tensors)) {
    return PyErr_Format(PyExc_TypeError, "look() takes a list of tensors, not %R", Py_TYPE(tensors));
  }
  thread_local Numbers seen[4];  // memory of the step before
  for (auto& numbers : seen) {
    numbers.clear();
  }
  bool is_seen = false;
  try {
    is_seen = note_all(tensors, with_gradient, seen);
  } catch (const std::exception&) {  // what has no strides, or no memory
  }
  if (!is_seen) {
    PyErr_Clear();
    Py_RETURN_NONE;
  }
  return Py_BuildValue("NNNN", bytes_of(seen[0]), bytes_of(seen[1]), bytes_of(seen[2]), bytes_of(seen[3]));
}
