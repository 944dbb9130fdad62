! cddp.f90 - a part of cddp for Fortran 2018, by ISO_C_BINDING: group, collectives of real32, real64,
! int32 and int64, gradients, sampler, error text. Compile it with the program; link -lcddp.
!
! Functions give cddp_ok or another status; cddp_must() ends the program with the error's text.
! Parameter indices, ranks and positions count from 0, as in C. Parameters and gradients are declared
! target: cddp keeps their addresses, and calls that do not name them change them.
module cddp
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: error_unit, int32, int64, real32, real64
    implicit none
    private

    public :: cddp_group_create, cddp_group_destroy, cddp_group_rank, cddp_group_world_size
    public :: cddp_all_reduce, cddp_broadcast, cddp_all_gather, cddp_barrier
    public :: cddp_param_of, cddp_ddp_create, cddp_ddp_begin, cddp_ddp_begin_micro_batch, cddp_ddp_grad_ready, cddp_ddp_wait
    public :: cddp_ddp_grads_ready, cddp_ddp_broadcast, cddp_ddp_follow
    public :: cddp_ddp_destroy, cddp_share_of, cddp_last_error, cddp_must
    public :: cddp_sampler_create, cddp_sampler_destroy, cddp_sampler_set_epoch, cddp_sampler_at

    integer(c_int), parameter, public :: cddp_ok = 0
    integer(c_int), parameter, public :: cddp_f32 = 0, cddp_f64 = 1, cddp_i32 = 4, cddp_i64 = 5
    integer(c_int), parameter, public :: cddp_op_sum = 0, cddp_op_mean = 1, cddp_op_min = 2
    integer(c_int), parameter, public :: cddp_op_max = 3, cddp_op_prod = 4
    integer(c_int), parameter, public :: cddp_order_sequential = 0, cddp_order_random = 1
    integer(c_int), parameter, public :: cddp_order_torch = 2
    integer, parameter :: name_bytes = 512

    ! A run of positions, from 0.
    type, bind(c), public :: cddp_share
        integer(c_int64_t) :: first, count
    end type

    ! cddp_param of types.h.
    type, bind(c) :: c_param
        type(c_ptr) :: name
        integer(c_int) :: kind, dims
        integer(c_int64_t) :: shape(8)
        type(c_ptr) :: values, grad
        integer(c_int32_t) :: flags, reserved
        integer(c_int64_t) :: reserved2(2)
    end type

    ! cddp_step of ddp.h.
    type, bind(c) :: c_step
        integer(c_size_t) :: struct_size
        integer(c_int64_t) :: number, samples
        integer(c_int) :: kind, reserved
        integer(c_int64_t) :: micro_batch, micro_batches
    end type

    ! A parameter, its gradient and its name: see cddp_param_of().
    type, public :: cddp_param
        character(kind=c_char) :: name(name_bytes) = c_null_char
        type(c_param) :: c
    end type

    interface cddp_param_of
        module procedure param_of_real32, param_of_real64
    end interface
    interface cddp_all_reduce
        module procedure all_reduce_real32, all_reduce_real64, all_reduce_int32, all_reduce_int64
        module procedure all_reduce_one_real32, all_reduce_one_real64
    end interface
    interface cddp_broadcast
        module procedure broadcast_real32, broadcast_real64, broadcast_int32, broadcast_int64
    end interface
    interface cddp_all_gather
        module procedure all_gather_real32, all_gather_real64, all_gather_int32, all_gather_int64
    end interface

    interface
        integer(c_int) function c_group_create(options, out) bind(c, name="cddp_group_create")
            import :: c_int, c_ptr
            type(c_ptr), value :: options
            type(c_ptr), intent(out) :: out
        end function
        subroutine cddp_group_destroy(group) bind(c, name="cddp_group_destroy")
            import :: c_ptr
            type(c_ptr), value :: group
        end subroutine
        integer(c_int) function cddp_group_rank(group) bind(c, name="cddp_group_rank")
            import :: c_int, c_ptr
            type(c_ptr), value :: group
        end function
        integer(c_int) function cddp_group_world_size(group) bind(c, name="cddp_group_world_size")
            import :: c_int, c_ptr
            type(c_ptr), value :: group
        end function
        integer(c_int) function c_all_reduce(group, from, to, count, kind, op, work) &
            bind(c, name="cddp_all_reduce")
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), value :: group, from, to, work
            integer(c_size_t), value :: count
            integer(c_int), value :: kind, op
        end function
        integer(c_int) function c_broadcast(group, values, count, kind, root, work) &
            bind(c, name="cddp_broadcast")
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), value :: group, values, work
            integer(c_size_t), value :: count
            integer(c_int), value :: kind, root
        end function
        integer(c_int) function c_all_gather(group, from, to, count, kind, work) &
            bind(c, name="cddp_all_gather")
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), value :: group, from, to, work
            integer(c_size_t), value :: count
            integer(c_int), value :: kind
        end function
        integer(c_int) function c_barrier(group, work) bind(c, name="cddp_barrier")
            import :: c_int, c_ptr
            type(c_ptr), value :: group, work
        end function
        integer(c_int) function c_ddp_create(group, params, param_count, buffers, buffer_count, &
            options, out) bind(c, name="cddp_ddp_create")
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), value :: group, params, buffers, options
            integer(c_size_t), value :: param_count, buffer_count
            type(c_ptr), intent(out) :: out
        end function
        integer(c_int) function c_ddp_begin(ddp, how) bind(c, name="cddp_ddp_begin")
            import :: c_int, c_ptr, c_step
            type(c_ptr), value :: ddp
            type(c_step), intent(in) :: how
        end function
        integer(c_int) function c_ddp_grad_ready(ddp, index) bind(c, name="cddp_ddp_grad_ready")
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), value :: ddp
            integer(c_size_t), value :: index
        end function
        integer(c_int) function c_ddp_grads_ready(ddp, first, count) bind(c, name="cddp_ddp_grads_ready")
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), value :: ddp
            integer(c_size_t), value :: first, count
        end function
        integer(c_int) function c_ddp_broadcast(ddp, root, flags) bind(c, name="cddp_ddp_broadcast")
            import :: c_int, c_int32_t, c_ptr
            type(c_ptr), value :: ddp
            integer(c_int), value :: root
            integer(c_int32_t), value :: flags
        end function
        integer(c_int) function c_ddp_follow(ddp, everyone) bind(c, name="cddp_ddp_follow")
            import :: c_bool, c_int, c_ptr
            type(c_ptr), value :: ddp
            logical(c_bool), intent(out) :: everyone
        end function
        integer(c_int) function cddp_ddp_wait(ddp) bind(c, name="cddp_ddp_wait")
            import :: c_int, c_ptr
            type(c_ptr), value :: ddp
        end function
        subroutine cddp_ddp_destroy(ddp) bind(c, name="cddp_ddp_destroy")
            import :: c_ptr
            type(c_ptr), value :: ddp
        end subroutine
        ! The share of @p rank of the positions [first, first + count).
        type(cddp_share) function cddp_share_of(first, count, rank, world_size) &
            bind(c, name="cddp_share_of")
            import :: c_int, c_int64_t, cddp_share
            integer(c_int64_t), value :: first, count
            integer(c_int), value :: rank, world_size
        end function
        integer(c_int) function cddp_sampler_create(order, count, seed, out) &
            bind(c, name="cddp_sampler_create")
            import :: c_int, c_int64_t, c_ptr
            integer(c_int), value :: order
            integer(c_int64_t), value :: count, seed
            type(c_ptr), intent(out) :: out
        end function
        subroutine cddp_sampler_destroy(sampler) bind(c, name="cddp_sampler_destroy")
            import :: c_ptr
            type(c_ptr), value :: sampler
        end subroutine
        integer(c_int) function cddp_sampler_set_epoch(sampler, epoch) &
            bind(c, name="cddp_sampler_set_epoch")
            import :: c_int, c_int64_t, c_ptr
            type(c_ptr), value :: sampler
            integer(c_int64_t), value :: epoch
        end function
        ! -1: there is no such position.
        integer(c_int64_t) function cddp_sampler_at(sampler, position) &
            bind(c, name="cddp_sampler_at")
            import :: c_int64_t, c_ptr
            type(c_ptr), value :: sampler
            integer(c_int64_t), value :: position
        end function
        type(c_ptr) function c_last_error() bind(c, name="cddp_last_error")
            import :: c_ptr
        end function
        integer(c_size_t) function c_strlen(text) bind(c, name="strlen")
            import :: c_ptr, c_size_t
            type(c_ptr), value :: text
        end function
    end interface

contains

    ! What failed in the last call that failed.
    function cddp_last_error() result(text)
        character(len=:), allocatable :: text
        character(kind=c_char), pointer :: bytes(:)
        type(c_ptr) :: at
        integer :: i

        at = c_last_error()
        call c_f_pointer(at, bytes, [c_strlen(at)])
        allocate (character(len=size(bytes)) :: text)
        do i = 1, size(bytes)
            text(i:i) = bytes(i)
        end do
    end function

    ! End the program unless status is cddp_ok.
    subroutine cddp_must(status)
        integer(c_int), intent(in) :: status

        if (status /= cddp_ok) then
            write (error_unit, '(a)') cddp_last_error()
            error stop 1, quiet=.true.
        end if
    end subroutine

    ! Join as the launcher says.
    integer(c_int) function cddp_group_create(group) result(status)
        type(c_ptr), intent(out) :: group

        status = c_group_create(c_null_ptr, group)
    end function

    integer(c_int) function cddp_barrier(group) result(status)
        type(c_ptr), intent(in) :: group

        status = c_barrier(group, c_null_ptr)
    end function

    ! A parameter whose name, and the place of its array, C can read. What cannot be one keeps its
    ! reason in place of its name and has no place, so that cddp_ddp_create() refuses it with both.
    function param_of(name, kind, lengths, values, grad, fits) result(param)
        character(len=*), intent(in) :: name
        integer(c_int), intent(in) :: kind
        integer, intent(in) :: lengths(:) ! the array's shape
        type(c_ptr), intent(in) :: values, grad
        logical, intent(in) :: fits(2) ! both are contiguous; both have as many elements
        type(cddp_param) :: param
        character(len=name_bytes - 1) :: text
        integer :: dims, i

        dims = size(lengths)
        text = name
        if (len_trim(name) > len(text)) then
            text = name(1:40) // "... (a name longer than 511 characters)"
        else if (.not. fits(1)) then
            text = trim(name) // " (its elements do not lie side by side, and cddp takes no copy)"
        else if (.not. fits(2)) then
            text = trim(name) // " (it and its gradient differ in shape)"
        end if
        do i = 1, len_trim(text)
            param%name(i) = text(i:i)
        end do
        param%c%name = c_null_ptr ! cddp_ddp_create() knows where the name lies by then
        param%c%kind = kind
        param%c%dims = min(dims, size(param%c%shape))
        param%c%shape = 0
        if (dims > size(param%c%shape)) then
            param%c%dims = 1
            param%c%shape(1) = product(lengths)
        else
            param%c%shape(1:dims) = lengths(dims:1:-1) ! the last varies slowest: C's first
        end if
        param%c%values = c_null_ptr
        param%c%grad = c_null_ptr
        param%c%flags = 0
        param%c%reserved = 0
        param%c%reserved2 = 0
        if (all(fits) .and. len_trim(name) <= len(text)) then
            param%c%values = values
            param%c%grad = grad
        end if
    end function

    ! A parameter and where backward writes its gradient: arrays of any rank, which stay the
    ! caller's, have one shape and whose elements lie side by side. cddp keeps the arrays' own
    ! addresses, so nothing may be copied on the way: not a(1,:), and no pointer to it.
    function param_of_real32(name, values, grad) result(param)
        character(len=*), intent(in) :: name
        real(real32), intent(in), target :: values(..), grad(..)
        type(cddp_param) :: param
        integer :: i

        param = param_of(name, cddp_f32, [(size(values, i), i=1, rank(values))], c_loc(values), &
                         c_loc(grad), [is_contiguous(values) .and. is_contiguous(grad), &
                                       rank(values) == rank(grad) .and. size(values) == size(grad)])
    end function

    function param_of_real64(name, values, grad) result(param)
        character(len=*), intent(in) :: name
        real(real64), intent(in), target :: values(..), grad(..)
        type(cddp_param) :: param
        integer :: i

        param = param_of(name, cddp_f64, [(size(values, i), i=1, rank(values))], c_loc(values), &
                         c_loc(grad), [is_contiguous(values) .and. is_contiguous(grad), &
                                       rank(values) == rank(grad) .and. size(values) == size(grad)])
    end function

    ! Compare manifests, broadcast rank 0's parameters, plan the buckets.
    integer(c_int) function cddp_ddp_create(group, params, ddp) result(status)
        type(c_ptr), intent(in) :: group
        type(cddp_param), intent(in), target :: params(:)
        type(c_ptr), intent(out) :: ddp
        type(c_param), target :: list(size(params))
        integer :: i

        do i = 1, size(params)
            list(i) = params(i)%c
            list(i)%name = c_loc(params(i)%name)
        end do
        status = c_ddp_create(group, c_loc(list), size(params, kind=c_size_t), c_null_ptr, &
                              0_c_size_t, c_null_ptr, ddp)
    end function

    ! Begin the backward of this step, of which this rank has `samples` samples.
    integer(c_int) function cddp_ddp_begin(ddp, step, samples) result(status)
        type(c_ptr), intent(in) :: ddp
        integer, intent(in) :: step, samples
        type(c_step) :: how

        how = c_step(c_sizeof(how), int(step, c_int64_t), int(samples, c_int64_t), 0, 0, 0, 0)
        status = c_ddp_begin(ddp, how)
    end function

    ! Begin the backward of a micro-batch, from 0, of so many that all ranks together have in this
    ! step. cddp adds up their gradients, in the same order on any number of ranks.
    integer(c_int) function cddp_ddp_begin_micro_batch(ddp, step, micro_batch, micro_batches) result(status)
        type(c_ptr), intent(in) :: ddp
        integer, intent(in) :: step, micro_batch, micro_batches
        integer(c_int), parameter :: by_micro_batches = 3 ! CDDP_STEP_BY_MICRO_BATCHES
        type(c_step) :: how

        how = c_step(c_sizeof(how), int(step, c_int64_t), 0_c_int64_t, by_micro_batches, 0, &
                     int(micro_batch, c_int64_t), int(micro_batches, c_int64_t))
        status = c_ddp_begin(ddp, how)
    end function

    ! Backward has finished gradient index, from 0.
    integer(c_int) function cddp_ddp_grad_ready(ddp, index) result(status)
        type(c_ptr), intent(in) :: ddp
        integer, intent(in) :: index

        status = c_ddp_grad_ready(ddp, int(index, c_size_t))
    end function

    ! The same of count gradients, from first on.
    integer(c_int) function cddp_ddp_grads_ready(ddp, first, count) result(status)
        type(c_ptr), intent(in) :: ddp
        integer, intent(in) :: first, count

        status = c_ddp_grads_ready(ddp, int(first, c_size_t), int(count, c_size_t))
    end function

    ! Every rank gets root's parameters, as after root has read a checkpoint.
    integer(c_int) function cddp_ddp_broadcast(ddp, root) result(status)
        type(c_ptr), intent(in) :: ddp
        integer, intent(in) :: root

        status = c_ddp_broadcast(ddp, int(root, c_int), 1_c_int32_t) ! CDDP_BROADCAST_PARAMS
    end function

    ! For a rank without a backward in this step: take part in that of the others, with nothing to
    ! contribute. everyone: no rank had a backward.
    integer(c_int) function cddp_ddp_follow(ddp, everyone) result(status)
        type(c_ptr), intent(in) :: ddp
        logical(c_bool), intent(out) :: everyone

        status = c_ddp_follow(ddp, everyone)
    end function

    integer(c_int) function all_reduce_real32(group, values, op) result(status)
        type(c_ptr), intent(in) :: group
        real(real32), intent(inout), target, contiguous :: values(:)
        integer(c_int), intent(in) :: op

        status = c_all_reduce(group, c_loc(values), c_loc(values), size(values, kind=c_size_t), &
                              cddp_f32, op, c_null_ptr)
    end function

    integer(c_int) function broadcast_real32(group, values, root) result(status)
        type(c_ptr), intent(in) :: group
        real(real32), intent(inout), target, contiguous :: values(:)
        integer, intent(in) :: root

        status = c_broadcast(group, c_loc(values), size(values, kind=c_size_t), cddp_f32, &
                             int(root, c_int), c_null_ptr)
    end function

    ! all is world_size times as long as own.
    integer(c_int) function all_gather_real32(group, own, all) result(status)
        type(c_ptr), intent(in) :: group
        real(real32), intent(in), target, contiguous :: own(:)
        real(real32), intent(inout), target, contiguous :: all(:)

        if (size(all) /= size(own) * cddp_group_world_size(group)) then
            error stop "cddp_all_gather: all has not world_size times the size of own"
        end if
        status = c_all_gather(group, c_loc(own), c_loc(all), size(own, kind=c_size_t), cddp_f32, &
                              c_null_ptr)
    end function

    integer(c_int) function all_reduce_real64(group, values, op) result(status)
        type(c_ptr), intent(in) :: group
        real(real64), intent(inout), target, contiguous :: values(:)
        integer(c_int), intent(in) :: op

        status = c_all_reduce(group, c_loc(values), c_loc(values), size(values, kind=c_size_t), &
                              cddp_f64, op, c_null_ptr)
    end function

    integer(c_int) function broadcast_real64(group, values, root) result(status)
        type(c_ptr), intent(in) :: group
        real(real64), intent(inout), target, contiguous :: values(:)
        integer, intent(in) :: root

        status = c_broadcast(group, c_loc(values), size(values, kind=c_size_t), cddp_f64, &
                             int(root, c_int), c_null_ptr)
    end function

    ! all is world_size times as long as own.
    integer(c_int) function all_gather_real64(group, own, all) result(status)
        type(c_ptr), intent(in) :: group
        real(real64), intent(in), target, contiguous :: own(:)
        real(real64), intent(inout), target, contiguous :: all(:)

        if (size(all) /= size(own) * cddp_group_world_size(group)) then
            error stop "cddp_all_gather: all has not world_size times the size of own"
        end if
        status = c_all_gather(group, c_loc(own), c_loc(all), size(own, kind=c_size_t), cddp_f64, &
                              c_null_ptr)
    end function

    integer(c_int) function all_reduce_int32(group, values, op) result(status)
        type(c_ptr), intent(in) :: group
        integer(int32), intent(inout), target, contiguous :: values(:)
        integer(c_int), intent(in) :: op

        status = c_all_reduce(group, c_loc(values), c_loc(values), size(values, kind=c_size_t), &
                              cddp_i32, op, c_null_ptr)
    end function

    integer(c_int) function broadcast_int32(group, values, root) result(status)
        type(c_ptr), intent(in) :: group
        integer(int32), intent(inout), target, contiguous :: values(:)
        integer, intent(in) :: root

        status = c_broadcast(group, c_loc(values), size(values, kind=c_size_t), cddp_i32, &
                             int(root, c_int), c_null_ptr)
    end function

    ! all is world_size times as long as own.
    integer(c_int) function all_gather_int32(group, own, all) result(status)
        type(c_ptr), intent(in) :: group
        integer(int32), intent(in), target, contiguous :: own(:)
        integer(int32), intent(inout), target, contiguous :: all(:)

        if (size(all) /= size(own) * cddp_group_world_size(group)) then
            error stop "cddp_all_gather: all has not world_size times the size of own"
        end if
        status = c_all_gather(group, c_loc(own), c_loc(all), size(own, kind=c_size_t), cddp_i32, &
                              c_null_ptr)
    end function

    integer(c_int) function all_reduce_int64(group, values, op) result(status)
        type(c_ptr), intent(in) :: group
        integer(int64), intent(inout), target, contiguous :: values(:)
        integer(c_int), intent(in) :: op

        status = c_all_reduce(group, c_loc(values), c_loc(values), size(values, kind=c_size_t), &
                              cddp_i64, op, c_null_ptr)
    end function

    integer(c_int) function broadcast_int64(group, values, root) result(status)
        type(c_ptr), intent(in) :: group
        integer(int64), intent(inout), target, contiguous :: values(:)
        integer, intent(in) :: root

        status = c_broadcast(group, c_loc(values), size(values, kind=c_size_t), cddp_i64, &
                             int(root, c_int), c_null_ptr)
    end function

    ! all is world_size times as long as own.
    integer(c_int) function all_gather_int64(group, own, all) result(status)
        type(c_ptr), intent(in) :: group
        integer(int64), intent(in), target, contiguous :: own(:)
        integer(int64), intent(inout), target, contiguous :: all(:)

        if (size(all) /= size(own) * cddp_group_world_size(group)) then
            error stop "cddp_all_gather: all has not world_size times the size of own"
        end if
        status = c_all_gather(group, c_loc(own), c_loc(all), size(own, kind=c_size_t), cddp_i64, &
                              c_null_ptr)
    end function

    integer(c_int) function all_reduce_one_real32(group, number, op) result(status)
        type(c_ptr), intent(in) :: group
        real(real32), intent(inout), target :: number
        integer(c_int), intent(in) :: op

        status = c_all_reduce(group, c_loc(number), c_loc(number), 1_c_size_t, cddp_f32, op, c_null_ptr)
    end function

    integer(c_int) function all_reduce_one_real64(group, number, op) result(status)
        type(c_ptr), intent(in) :: group
        real(real64), intent(inout), target :: number
        integer(c_int), intent(in) :: op

        status = c_all_reduce(group, c_loc(number), c_loc(number), 1_c_size_t, cddp_f64, op, c_null_ptr)
    end function

end module
