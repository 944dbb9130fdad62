! fortran_options.f90 - options of groups and gradients, micro-batches and the loader from Fortran, on
! 2 ranks: each option is seen to reach cddp.
module squares
    use, intrinsic :: iso_c_binding
    use cddp, only: cddp_ok
    implicit none

contains

    ! Sample index has two numbers: its index and its square.
    recursive integer(c_int) function square(state, index, out) bind(c) result(status)
        type(c_ptr), value :: state, out
        integer(c_int64_t), value :: index
        real(c_double), pointer :: pair(:)
        integer(c_int), pointer :: offset

        call c_f_pointer(state, offset)
        call c_f_pointer(out, pair, [2])
        pair = [real(index + offset, c_double), real(index, c_double)**2]
        status = cddp_ok
    end function

end module

program fortran_options
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int64, real32, real64
    use cddp
    use fortran_expect
    use squares
    implicit none
    integer, parameter :: samples = 25, batch_size = 6, micro_batches = 4
    real(real32), target :: a(3), b(2), a_grad(3), b_grad(2)
    integer(c_int), target :: offset = 1000
    type(cddp_group_options) :: how
    type(c_ptr) :: group, none

    how%backend = "nonesuch"
    call refuse_group("nonesuch")
    deallocate (how%backend)
    how%device = "quantum"
    call refuse_group("quantum")
    how%device = "cpu"
    how%timeout_ms = 60000
    call cddp_must(cddp_group_create(group, how))
    call expect(cddp_group_world_size(group) == 2, "the launcher says what the options leave open")

    call options_of_gradients()
    call micro_batches_of_a_step()
    call batches(0)
    call batches(micro_batches)
    call refuse_loader()
    call cddp_group_destroy(group)

contains

    subroutine options_of_gradients()
        type(cddp_ddp_options) :: options
        type(c_ptr) :: ddp

        options%ready_order = [0, 0]
        call refuse_ddp(options, "not a permutation")
        options%ready_order = [0, 1]
        options%config = "rank " // achar(48 + cddp_group_rank(group))
        call refuse_ddp(options, "rank 1")
        options%config = "the same"
        options%allow_unused = .true.
        options%first_bucket_bytes = 1
        options%bucket_bytes = 4
        options%part_bytes = 1024
        options%hook = c_funloc(cddp_hook_bf16)
        call model(options, ddp)
        a_grad = 1.001 ! bf16 has no more than 1
        call cddp_must(cddp_ddp_begin(ddp, 1, 1))
        call cddp_must(cddp_ddp_grad_ready(ddp, 0)) ! and not b: it is unused
        call cddp_must(cddp_ddp_wait(ddp))
        call expect(all(abs(a_grad - 1) < 1e-6), "gradients are sent in 16 bits")
        call cddp_ddp_destroy(ddp)
    end subroutine

    subroutine micro_batches_of_a_step()
        type(c_ptr) :: ddp
        integer :: k, first

        call model(cddp_ddp_options(), ddp)
        a_grad = 0
        b_grad = 0
        first = 2 * cddp_group_rank(group)
        do k = first, first + 1
            call cddp_must(cddp_ddp_begin(ddp, 1, 2, k, 4))
            a_grad = a_grad + k / 2.0
            b_grad = b_grad + 1 / 2.0
            call cddp_must(cddp_ddp_grads_ready(ddp, 0, 2))
            call cddp_must(cddp_ddp_wait(ddp))
        end do
        call expect(all(abs(a_grad - 1.5) < 1e-6), "the mean over four micro-batches")
        call expect(all(abs(b_grad - 1) < 1e-6), "the mean of ones")
        call cddp_ddp_destroy(ddp)
    end subroutine

    subroutine batches(parts)
        integer, intent(in) :: parts
        type(cddp_loader_options) :: options
        type(cddp_batch) :: batch
        type(c_ptr) :: loader
        integer(c_int64_t), pointer :: indices(:)
        real(c_double), pointer :: values(:,:)
        integer(int64) :: seen(samples)
        integer :: n

        options%samples = samples
        options%sample_bytes = 16
        options%batch_size = batch_size
        options%load = c_funloc(square)
        options%state = c_loc(offset)
        options%order = cddp_order_random
        options%seed = 7
        options%threads = 2
        options%micro_batches = parts
        call cddp_must(cddp_loader_create(options, loader, group))
        call expect(cddp_loader_batch_count(loader) == 5, "25 samples are 5 batches")
        call cddp_must(cddp_loader_begin(loader, 3_int64, 0_int64))
        seen = 0
        do
            call cddp_must(cddp_loader_next(loader, batch))
            if (batch%over) exit
            call c_f_pointer(batch%indices, indices, [batch%count])
            call c_f_pointer(batch%values, values, [2_int64, batch%count])
            do n = 1, int(batch%count)
                call expect(nint(values(1, n)) == indices(n) + offset, "values are in place")
                call expect(nint(values(2, n), int64) == indices(n)**2, "and the second numbers")
                seen(indices(n) + 1) = seen(indices(n) + 1) + 1
            end do
        end do
        call cddp_must(cddp_all_reduce(group, seen, cddp_op_sum))
        call expect(all(seen == 1), "each sample is on one rank, once")
        call cddp_loader_destroy(loader)
    end subroutine

    subroutine refuse_loader()
        type(cddp_loader_options) :: options

        options%samples = 1
        options%sample_bytes = 16
        options%batch_size = 1
        call expect(cddp_loader_create(options, none) /= cddp_ok, "a loader needs a function")
    end subroutine

    subroutine model(options, ddp)
        type(cddp_ddp_options), intent(in) :: options
        type(c_ptr), intent(out) :: ddp

        a = 0
        b = 0
        call cddp_must(cddp_ddp_create(group, [cddp_param_of("a", a, a_grad), &
                                               cddp_param_of("b", b, b_grad)], ddp, options))
    end subroutine

    subroutine refuse_ddp(options, text)
        type(cddp_ddp_options), intent(in) :: options
        character(len=*), intent(in) :: text

        call expect(cddp_ddp_create(group, [cddp_param_of("a", a, a_grad), &
                                            cddp_param_of("b", b, b_grad)], none, options) /= cddp_ok, &
                    text // " is refused")
        call expect(index(cddp_last_error(), text) > 0, cddp_last_error())
    end subroutine

    subroutine refuse_group(text)
        character(len=*), intent(in) :: text

        call expect(cddp_group_create(none, how) /= cddp_ok, text // " is refused")
        call expect(index(cddp_last_error(), text) > 0, cddp_last_error())
    end subroutine

end program
