! cddp_data.f90 - which samples a rank has, in which order, and threads that load them (sampler.h,
! loader.h) for Fortran 2018; a part of module cddp, which passes it on.
module cddp_data
    use, intrinsic :: iso_c_binding
    implicit none
    private

    public :: cddp_share_of
    public :: cddp_sampler_create, cddp_sampler_destroy, cddp_sampler_set_epoch, cddp_sampler_at
    public :: cddp_loader_create, cddp_loader_destroy, cddp_loader_begin, cddp_loader_next
    public :: cddp_loader_batch_count

    integer(c_int), parameter, public :: cddp_order_sequential = 0, cddp_order_random = 1
    integer(c_int), parameter, public :: cddp_order_torch = 2

    ! A run of positions, from 0.
    type, bind(c), public :: cddp_share
        integer(c_int64_t) :: first, count
    end type

    ! A data set, and how it is divided into batches: see cddp_loader_options of loader.h. Set
    ! samples, sample_bytes, batch_size and load.
    type, public :: cddp_loader_options
        integer(c_int64_t) :: samples = 0, sample_bytes = 0, batch_size = 0
        ! c_funloc() of a function
        !     recursive integer(c_int) function load(state, index, out) bind(c)
        !         type(c_ptr), value :: state, out
        !         integer(c_int64_t), value :: index
        ! which writes sample index, from 0, to out and gives cddp_ok. Several threads call it at
        ! once: `recursive` keeps its variables apart, and it may save none.
        type(c_funptr) :: load = c_null_funptr
        type(c_ptr) :: state = c_null_ptr
        integer(c_int) :: order = cddp_order_sequential
        integer :: threads = 0, ahead = 0
        logical :: drop_last = .false.
        integer(c_int64_t) :: seed = 0, micro_batches = 0
    end type

    ! cddp_loader_options of loader.h.
    type, bind(c) :: c_loader_options
        integer(c_size_t) :: struct_size
        type(c_ptr) :: group
        integer(c_int64_t) :: samples
        integer(c_size_t) :: sample_bytes
        integer(c_int64_t) :: batch_size
        type(c_funptr) :: load
        type(c_ptr) :: state
        integer(c_int) :: order, threads, ahead
        logical(c_bool) :: drop_last
        integer(c_int64_t) :: seed, micro_batches
    end type

    ! cddp_batch of loader.h, in which `over` is called `end`. c_f_pointer() makes arrays of values
    ! and of indices; they are the loader's, and valid until the next call on it.
    type, bind(c), public :: cddp_batch
        integer(c_size_t) :: struct_size
        type(c_ptr) :: values, indices
        integer(c_int64_t) :: count, total, number, micro_batch, samples, wait_ns
        logical(c_bool) :: over
        integer(c_int8_t) :: reserved(7)
    end type

    interface
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
        integer(c_int) function c_loader_create(options, out) bind(c, name="cddp_loader_create")
            import :: c_int, c_loader_options, c_ptr
            type(c_loader_options), intent(in) :: options
            type(c_ptr), intent(out) :: out
        end function
        subroutine cddp_loader_destroy(loader) bind(c, name="cddp_loader_destroy")
            import :: c_ptr
            type(c_ptr), value :: loader
        end subroutine
        ! Begin an epoch at batch first, from 0.
        integer(c_int) function cddp_loader_begin(loader, epoch, first) &
            bind(c, name="cddp_loader_begin")
            import :: c_int, c_int64_t, c_ptr
            type(c_ptr), value :: loader
            integer(c_int64_t), value :: epoch, first
        end function
        integer(c_int) function c_loader_next(loader, out) bind(c, name="cddp_loader_next")
            import :: c_int, c_ptr, cddp_batch
            type(c_ptr), value :: loader
            type(cddp_batch), intent(inout) :: out
        end function
        integer(c_int64_t) function cddp_loader_batch_count(loader) &
            bind(c, name="cddp_loader_batch_count")
            import :: c_int64_t, c_ptr
            type(c_ptr), value :: loader
        end function
    end interface

contains

    ! Ranks of group share each batch; without it, this process has each batch whole.
    integer(c_int) function cddp_loader_create(options, loader, group) result(status)
        type(cddp_loader_options), intent(in) :: options
        type(c_ptr), intent(out) :: loader
        type(c_ptr), intent(in), optional :: group
        type(c_loader_options) :: how

        how%struct_size = c_sizeof(how)
        how%group = c_null_ptr
        if (present(group)) how%group = group
        how%samples = options%samples
        how%sample_bytes = options%sample_bytes
        how%batch_size = options%batch_size
        how%load = options%load
        how%state = options%state
        how%order = options%order
        how%threads = int(options%threads, c_int)
        how%ahead = int(options%ahead, c_int)
        how%drop_last = logical(options%drop_last, c_bool)
        how%seed = options%seed
        how%micro_batches = options%micro_batches
        status = c_loader_create(how, loader)
    end function

    ! Wait for this rank's share of the next batch; batch%over: the epoch has none left.
    integer(c_int) function cddp_loader_next(loader, batch) result(status)
        type(c_ptr), intent(in) :: loader
        type(cddp_batch), intent(out) :: batch

        batch%struct_size = c_sizeof(batch)
        batch%reserved = 0
        status = c_loader_next(loader, batch)
    end function

end module
